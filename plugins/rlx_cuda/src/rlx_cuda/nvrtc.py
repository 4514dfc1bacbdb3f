"""NVRTC, NVIDIA's compiler of CUDA C: it needs neither a driver nor a device, only its library, which a wheel brings.

It is called by ctypes, and not through CuPy, so that code is compiled for devices that are not here; the interpreter is free
meanwhile, and several threads compile at once.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Final

from attrs import frozen

from rlx_core.errors import DeviceUnavailableError, Fact, KernelBuildError

__all__ = ["Compiled", "Usage", "architecture_for", "architectures", "compiled", "version"]

PACKAGES: Final = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
"""Wheels that hold it: CuPy's extra `ctk` brings the one of its CUDA."""

INSTALL: Final = "python -m pip install nvidia-cuda-nvrtc"


@frozen
class Usage:
    """What a kernel takes of a device.

    Attributes:
        registers: Of each thread.
        spilled: Bytes of registers that each thread keeps in memory instead, stored and loaded together.
        stack: Bytes of memory of each thread's own, for arrays that are indexed, say.
        shared: Bytes that the threads of a group share.
    """

    registers: int
    spilled: int = 0
    stack: int = 0
    shared: int = 0

    def __str__(self) -> str:
        said = f"{self.registers} registers, {self.shared} bytes shared, {self.spilled} bytes spilled"
        return f"{said}, {self.stack} bytes of stack" if self.stack else said


@frozen
class Compiled:
    """A module in PTX or as CUBIN, and what its assembler said of each kernel; nothing is said of PTX."""

    code: bytes
    usage: dict[str, Usage]


def compiled(source: str, architecture: str, options: Sequence[str], *, place: str = "cuda") -> Compiled:
    """A source compiled: as CUBIN for `sm_90`, as PTX for `compute_90`.

    Args:
        place: The device, for errors.

    Raises:
        KernelBuildError: NVRTC refuses the source or the architecture.
        DeviceUnavailableError: NVRTC is not installed.
    """
    library, program = _library(), c_void_p()
    is_ptx = architecture.startswith("compute_")
    said = [f"--gpu-architecture={architecture}", "-w", *options, *(() if is_ptx else ("--ptxas-options=-v",))]
    arguments = (c_char_p * len(said))(*(each.encode() for each in said))
    _expect(library, library.nvrtcCreateProgram(byref(program), source.encode(), b"rlx.cu", 0, None, None), place)
    try:
        status = library.nvrtcCompileProgram(program, len(said), arguments)
        log = _text(library, program, "ProgramLog").decode(errors="replace")
        if status:
            raise KernelBuildError(
                f"{place}: its compiler refuses the source",
                Fact("compiler", f"NVRTC {version()} for {architecture}", log.strip("\0 \n")[-2000:] or None),
                hint="the source is what `rlx compile --target cuda --emit cuda` prints",
            )
        return Compiled(_text(library, program, "PTX" if is_ptx else "CUBIN"), dict(_usages(log)))
    finally:
        library.nvrtcDestroyProgram(byref(program))


def architectures() -> tuple[int, ...]:
    """The compute capabilities that it has code for, as 10 times the major number plus the minor one."""
    library, count = _library(), c_int()
    _expect(library, library.nvrtcGetNumSupportedArchs(byref(count)))
    found = (c_int * count.value)()
    _expect(library, library.nvrtcGetSupportedArchs(found))
    return tuple(found)


def architecture_for(capability: int) -> str:
    """What to compile for a device: its own code, or PTX for the driver to finish if it is newer than the compiler."""
    known = architectures()
    return f"sm_{capability}" if capability in known else f"compute_{max(a for a in known if a <= capability)}"


@cache
def version() -> str:
    """Its version: `13.0`."""
    library, major, minor = _library(), c_int(), c_int()
    _expect(library, library.nvrtcVersion(byref(major), byref(minor)))
    return f"{major.value}.{minor.value}"


# ------------------------------------------------------------------------------------------------ details

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def _usages(log: str) -> Iterator[tuple[str, Usage]]:
    """What the assembler says of each kernel: its properties, then what it used."""
    name, frame = "", (0, 0, 0)
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            name = entry[1]
        elif properties := _FRAME.search(line):
            frame = (int(properties[1]), int(properties[2]), int(properties[3]))
        elif used := _USED.search(line):
            shared = _SHARED.search(line)
            yield name, Usage(int(used[1]), frame[1] + frame[2], frame[0], int(shared[1]) if shared else 0)


def _text(library: ctypes.CDLL, program: c_void_p, what: str) -> bytes:
    size = c_size_t()
    _expect(library, getattr(library, f"nvrtcGet{what}Size")(program, byref(size)))
    made = ctypes.create_string_buffer(size.value)
    _expect(library, getattr(library, f"nvrtcGet{what}")(program, made))
    return made.raw


def _expect(library: ctypes.CDLL, status: int, place: str = "cuda") -> None:
    if status:
        said = library.nvrtcGetErrorString(status).decode()
        raise KernelBuildError(f"{place}: its compiler does not work", Fact("compiler", said), hint=INSTALL)


@cache
def _library() -> ctypes.CDLL:
    """The library: of an installed wheel, of a toolkit, or wherever the system finds one.

    Raises:
        DeviceUnavailableError: There is none.
    """
    failed: list[Fact] = []
    for path in _paths():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            failed.append(Fact("tried", path, str(error)))
            continue
        library.nvrtcGetErrorString.restype = c_char_p
        library.nvrtcDestroyProgram.argtypes = [POINTER(c_void_p)]
        return library
    raise DeviceUnavailableError("cuda: NVRTC, which compiles CUDA C, is not installed", *failed[:3], hint=INSTALL)


def _packages() -> tuple[str, ...]:
    """The wheels, that of CuPy's own CUDA first: a driver of CUDA 12 does not load what NVRTC 13 makes, which stays installed
    when somebody replaces CuPy."""
    return PACKAGES[::-1] if _is_installed("cupy-cuda12x") else PACKAGES


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _paths() -> Iterator[str]:
    for package in _packages():
        try:
            files = importlib.metadata.files(package) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        yield from (str(f.locate()) for f in files if re.match(r"(lib)?nvrtc(64_\d+_0|\.so\.\d+)?(\.dll)?$", f.name))
    toolkit = os.environ.get("CUDA_PATH", os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    yield from sorted(map(str, Path(toolkit).glob("lib64/libnvrtc.so.1?")), reverse=True)
    if not sys.platform.startswith("win"):
        yield from ("libnvrtc.so.13", "libnvrtc.so.12")
