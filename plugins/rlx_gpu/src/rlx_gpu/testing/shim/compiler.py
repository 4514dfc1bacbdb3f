"""The available C++ compiler: g++ or clang++ of the system, else the one of the package `ziglang`."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from rlx_core.errors import DeviceUnavailableError, Fact, KernelBuildError
from rlx_core.system.records import frozen

HEADERS: Final = Path(__file__).parent

NAMES: Final = ("g++", "clang++", *(f"{name}-{n}" for n in range(22, 11, -1) for name in ("g++", "clang++")))

OPTIONS: Final = (
    *("-std=c++17", "-O1", "-fPIC", "-shared", "-w", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden"),
    *("-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-fsigned-char", "-fno-sanitize=undefined"),
)
"""Flags for the semantics of a GPU: no contraction of products and sums, no strict aliasing, integers wrap around."""

INSTALL: Final = "install a C++ compiler: apt-get install g++, or python -m pip install ziglang"


@frozen
class Compiler:
    """A C++ compiler.

    Attributes:
        command: Its command line.
        identity: It, its version and our headers: with a source, all that determines its output.
    """

    command: tuple[str, ...]
    identity: str

    def shared_object(self, source: str) -> bytes:
        """Compile a source to a shared object.

        Raises:
            KernelBuildError: It does not compile.
        """
        with tempfile.TemporaryDirectory(prefix="rlx-shim-") as folder:
            library = Path(folder, "kernels.so")
            files = ["-I", str(HEADERS), "-x", "c++", "-", "-o", str(library), "-lm"]
            done = subprocess.run(
                [*self.command, *OPTIONS, *files], input=source, capture_output=True, text=True, check=False
            )
            if done.returncode or not library.exists():
                raise KernelBuildError(
                    "the stand-in's C++ compiler refuses the source",
                    Fact("compiler", done.stderr.strip()[:2000]),
                    Fact("command", shlex.join(self.command)),
                )
            return library.read_bytes()


@cache
def compiler() -> Compiler:
    """The compiler that `CXX` names, else the first that is available.

    Raises:
        DeviceUnavailableError: No compiler is available, or the stacks of threads are not known for this machine.
    """
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        raise DeviceUnavailableError(
            f"a stand-in for a GPU needs Linux on x86-64, and this is {sys.platform} on {platform.machine()}"
        )
    command = _command()
    if command is None:
        raise DeviceUnavailableError("there is no C++ compiler, which a stand-in for a GPU needs", hint=INSTALL)
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    if version.returncode:
        raise DeviceUnavailableError(
            f"`{shlex.join(command)} --version` ends with status {version.returncode}",
            Fact("said", version.stderr.strip()[:500]),
            hint=INSTALL,
        )
    digest = hashlib.sha256(" ".join(OPTIONS).encode())
    for path in sorted(HEADERS.iterdir()):
        if path.suffix == ".h" or path.name == "metal_stdlib":
            digest.update(path.read_bytes())
    return Compiler(command, f"{version.stdout.splitlines()[0]}, headers {digest.hexdigest()[:12]}")


def _command() -> tuple[str, ...] | None:
    if named := os.environ.get("CXX"):
        return tuple(shlex.split(named))
    for name in NAMES:
        if (path := shutil.which(name)) is not None:
            return (path,)
    for n in range(22, 11, -1):  # Debian's clang comes without the name for C++
        if (path := shutil.which(f"clang-{n}")) is not None:
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        return sys.executable, "-m", "ziglang", "cc"  # as `c++` it would build a standard library first
    return None
