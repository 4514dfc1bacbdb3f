"""NVRTC, NVIDIA's compiler of CUDA C: it needs neither a driver nor a device, only its library, which a wheel brings.

How it is called is `rlx_core.device.runtime_compiler`'s matter; here is where it lies, and what its assembler says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ctypes import byref, c_int
from functools import partial
from typing import Final

from attrs import frozen

from rlx_core.device.runtime_compiler import RuntimeCompiler
from rlx_cuda.libraries import paths_of

__all__ = [
    "AMPERE",
    "HOPPER",
    "Compiled",
    "Usage",
    "architecture_for",
    "architectures",
    "compiled",
    "units_of",
    "version",
]

PACKAGES: Final = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
"""Wheels that hold it."""

INSTALL: Final = "python -m pip install nvidia-cuda-nvrtc"


HOPPER: Final = "sm_90a"
"""Compute capability 9.0 with what no other has: warpgroups that multiply. It names that feature of a device, too."""

AMPERE: Final = "sm_80"
"""Compute capability 8.0, from which devices have the matrix instructions of the language and asynchronous copies. It names that
feature of a device; 7.5, the oldest that kernels are compiled for, has none of them."""


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
    is_ptx = architecture.startswith("compute_")
    said = [f"--gpu-architecture={architecture}", "-w", *options, *(() if is_ptx else ("--ptxas-options=-v",))]
    made = NVRTC.compiled(source, architecture, said, "PTX" if is_ptx else "CUBIN", place)
    return Compiled(made.code, dict(_usages(made.log)))


def architectures() -> tuple[int, ...]:
    """The compute capabilities that it has code for, as 10 times the major number plus the minor one."""
    count = c_int()
    NVRTC.call("GetNumSupportedArchs", byref(count))
    found = (c_int * count.value)()
    NVRTC.call("GetSupportedArchs", found)
    return tuple(found)


def architecture_for(capability: int) -> str:
    """What to compile for a device: its own code, or PTX for the driver to finish if it is newer than the compiler."""
    known = architectures()
    if capability == 90 and capability in known:
        return HOPPER
    return f"sm_{capability}" if capability in known else f"compute_{max(a for a in known if a <= capability)}"


def units_of(architecture: str) -> frozenset[str]:
    """The matrix units that devices of an architecture have, as features: `sm_90a` has those of `sm_80` and its own."""
    number = re.search(r"\d+", architecture)
    is_new = number is None or int(number[0]) >= int(AMPERE.removeprefix("sm_"))
    return frozenset((*((AMPERE,) if is_new else ()), *((HOPPER,) if architecture == HOPPER else ())))


def version() -> str:
    """Its version: `13.0`."""
    return NVRTC.version


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


NVRTC: Final = RuntimeCompiler(
    name="NVRTC",
    language="CUDA C",
    target="cuda",
    level="cuda",
    prefix="nvrtc",
    file="rlx.cu",
    install=INSTALL,
    paths=partial(paths_of, "nvrtc", PACKAGES),
    beside="libnvrtc-builtins.so*",
)
