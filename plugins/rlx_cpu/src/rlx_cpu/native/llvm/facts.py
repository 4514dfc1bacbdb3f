"""LLVM's description of this machine, from a cache, so that a program whose code is all cached does not load LLVM's library.

The description is kept by what it depends on: the processor's own, which NumPy and Linux have read, and the file of the library.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from rlx_core.errors import CacheError
from rlx_core.ir.forms import PLAIN_FORMS
from rlx_core.system.disk import DiskCache
from rlx_core.system.private import cache_directory
from rlx_core.system.records import frozen
from rlx_cpu.native import llvm

_FORMAT: Final = 1

_CPUINFO: Final = Path("/proc/cpuinfo")
_PROCESSOR: Final = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags")
"""Lines of a processor there that are the same for all that are alike."""


@frozen
class LlvmFacts:
    """This machine in LLVM's words.

    Attributes:
        triple: The process's triple.
        cpu: The name of the processor.
        features: Its features, each with whether the processor has it.
        llvm, llvmlite: The versions.
    """

    triple: str
    cpu: str
    features: Mapping[str, bool]
    llvm: tuple[int, ...]
    llvmlite: str


@cache
def default_cache(directory: Path) -> DiskCache | None:
    """Return the cache in a directory; `None` if that cannot be used."""
    try:
        return DiskCache(directory)
    except CacheError:
        return None


@cache
def facts() -> LlvmFacts:
    """Return LLVM's description of this machine: from the cache, or from LLVM, and kept."""
    key = _key()
    store = None if key is None else default_cache(cache_directory() / "objects")
    if key is None or store is None:
        return facts_of_llvm()
    entry = store.get(key)
    if entry is not None:
        try:
            return PLAIN_FORMS.read(json.loads(entry), LlvmFacts, "facts")
        except (ValueError, KeyError, TypeError) as error:
            store.drop(key, repr(error))
    result = facts_of_llvm()
    store.put(key, json.dumps(PLAIN_FORMS.write(result, LlvmFacts), default=dict).encode())
    return result


def facts_of_llvm() -> LlvmFacts:
    """Return LLVM's description of this machine."""
    boundary = llvm.boundary
    version, llvmlite = boundary.versions()
    return LlvmFacts(boundary.triple(), boundary.host_name(), boundary.host_features(), version, llvmlite)


def _key() -> str | None:
    """Return the identity of the processor and of LLVM's library; `None` where the system does not describe them."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    try:
        parts = [_FORMAT, sorted(_numpy_features().items()), list(_processor()), list(_library())]
    except (OSError, UnicodeDecodeError):
        return None
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _processor() -> Iterator[str]:
    """Yield what Linux says of the first processor."""
    with _CPUINFO.open() as lines:
        for line in lines:
            if not line.strip():
                return
            if line.partition(":")[0].strip() in _PROCESSOR:
                yield line


def _numpy_features() -> Mapping[str, bool]:
    """Return the features that NumPy reads from the processor itself, which under an emulator is another than Linux's."""
    from numpy._core import _multiarray_umath

    features: Mapping[str, Any] = _multiarray_umath.__cpu_features__  # type: ignore[attr-defined]
    return {name: bool(value) for name, value in features.items()}


def _library() -> Iterator[tuple[Any, ...]]:
    """Yield the identities of the files of llvmlite that LLVM and the version are in."""
    spec = importlib.util.find_spec("llvmlite")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        for path in (Path(folder, "binding", "libllvmlite.so"), Path(folder, "_version.py")):
            status = path.stat()
            yield str(path), status.st_size, status.st_mtime_ns
