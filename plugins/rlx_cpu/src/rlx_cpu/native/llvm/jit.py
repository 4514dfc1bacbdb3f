"""LLVM modules as machine code in this process, with an on-disk cache of object files.

An object is compiled once per text, instruction set and version of LLVM; another process that needs the same object reads it
from the cache and links it (`loading`). Errors of the cache are not fatal: the module is compiled instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from rlx_core.pipeline.backend import ObjectStore
from rlx_core.plugins import stamp_of
from rlx_core.system.context import assigned
from rlx_core.system.private import cache_directory
from rlx_cpu.native import llvm
from rlx_cpu.native.llvm.isa import Isa, default_cache
from rlx_cpu.native.llvm.optimise import generate, machine_words, processor

if TYPE_CHECKING:
    from rlx_cpu.native.llvm import ir
    from rlx_cpu.native.llvm.background import JobFuture


class LinkedCode(Protocol):
    """Linked objects; addresses are valid as long as it lives."""

    def address(self, function: str) -> int:
        """Return the address of a function; 0 if no function has that name."""


class JitCode:
    """Machine code in this process, or on its way there; addresses are valid as long as it lives.

    Args:
        linked: The code, or a function that returns it once it is made.
        is_cached: Whether it was read from a cache.
        stored: Completes when it is stored in a cache, if it was not.
    """

    def __init__(
        self,
        linked: LinkedCode | Callable[[], LinkedCode],
        is_cached: bool,
        stored: JobFuture[bool] | None = None,
    ) -> None:
        self._linked = linked
        self._addresses: dict[str, int] = {}
        self.is_cached = is_cached
        self._stored = stored

    @classmethod
    def of(cls, objects: Sequence[JobFuture[bytes]], isa: Isa, store: Callable[[list[bytes]], bool] | None) -> JitCode:
        """The code of object files that are being made, which `store` keeps once it is linked."""
        pending = llvm.background.later(lambda: link([each.result() for each in objects], isa))
        stored = None if store is None else llvm.background.later(lambda: store([each.result() for each in objects]))
        return cls(pending.result, is_cached=False, stored=stored)

    def flush(self) -> None:
        """Wait until it is in the cache, if that is where it goes."""
        stored = self._stored
        if stored is not None:
            stored.result()
            self._stored = None

    def address(self, function: str) -> int:
        """Return the address of a function; KeyError if no function has that name.

        Raises:
            RuntimeError: LLVM did not take the code.
        """
        known = self._addresses.get(function)  # a call of LLVM waits for another thread
        if known is not None:
            return known
        linked = self._linked
        if callable(linked):
            linked = self._linked = linked()
        value = linked.address(function)
        if not value:
            raise KeyError(f"the code has no function {function}")
        self._addresses[function] = value
        return value


_chosen: ContextVar[tuple[ObjectStore | None] | None] = ContextVar("objects", default=None)


def keeping(store: ObjectStore | None) -> assigned[tuple[ObjectStore | None]]:
    """Context in which compiled code is stored in `store`; nowhere if that is `None`."""
    return assigned(_chosen, (store,))


def object_cache() -> ObjectStore | None:
    """Return the store of object files: that of `keeping`, else the cache directory; `None` if that cannot be used."""
    chosen = _chosen.get()
    return default_cache(cache_directory() / "objects") if chosen is None else chosen[0]


def compile_module(module: ir.Module, isa: Isa) -> JitCode:
    """Compile a module, or link its object from the cache, where it is kept by its text."""
    text = str(module)
    code = _kept(text, lambda: text, isa)
    code.flush()
    return code


def compile_named(name: str, make: Callable[[], ir.Module], isa: Isa) -> JitCode:
    """The code of a module that this package makes alike in every process, kept by its name and the package's stamp."""
    stamp = stamp_of(("rlx_cpu",))
    return compile_module(make(), isa) if stamp is None else _kept(f"{name} {stamp}", lambda: str(make()), isa)


def _kept(identity: str, text: Callable[[], str], isa: Isa) -> JitCode:
    """The code of a text from the cache, or made in the background and kept."""
    key, store = hashlib.sha256(repr((machine_words(isa), identity)).encode()).hexdigest(), object_cache()
    mark, cached = bytes.fromhex(key), None if store is None else store.get(key)
    if store is not None and cached is not None:
        try:
            if not cached.startswith(mark):
                raise RuntimeError("it is of another text")
            return JitCode(link_cached([cached.removeprefix(mark)], isa), is_cached=True)
        except RuntimeError as error:
            store.drop(key, str(error))
    pending = llvm.background.later(lambda: generate(text(), isa))
    return JitCode.of([pending], isa, None if store is None else lambda objects: store.put(key, mark + objects[0]))


def link_cached(objects: Sequence[bytes], isa: Isa) -> LinkedCode:
    """Object files from a cache in this process, linked by LLVM where `loading` does not.

    Raises:
        RuntimeError: One is damaged.
        OutOfMemoryError: Linking may need more memory than is available.
        KernelBuildError: The system does not let memory be executed.
    """
    linked = llvm.loading.linked(objects)
    return link(objects, isa) if linked is None else linked


def link(objects: Sequence[bytes], isa: Isa) -> LinkedCode:
    """Object files in this process, linked by LLVM, which has made them here.

    Raises:
        RuntimeError: LLVM does not take one.
        OutOfMemoryError: LLVM may need more memory than is available.
    """
    return llvm.boundary.link(objects, processor(isa))
