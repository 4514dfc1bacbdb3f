"""NVRTC, NVIDIA's run-time compiler for CUDA C: it needs neither a driver nor a device, only its library, available as a wheel.

`rlx_gpu.runtime_compiler` calls it; this module has its paths, its architectures, and a parser of the assembler's log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ctypes import byref, c_int
from functools import partial
from typing import Final

from attrs import frozen

from rlx_cuda.libraries import paths_of
from rlx_gpu.runtime_compiler import RuntimeCompiler

PACKAGES: Final = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
"""Wheels that contain the library."""

INSTALL: Final = "python -m pip install nvidia-cuda-nvrtc"


HOPPER: Final = "sm_90a"
"""Compute capability 9.0 with its architecture-specific feature, warpgroup matrix products. It also names that device feature."""

AMPERE: Final = "sm_80"
"""Compute capability 8.0, the first with the matrix instructions of the generated code and asynchronous copies. It also names
that device feature; 7.5, the oldest supported capability, has neither."""


@frozen
class Usage:
    """The resource usage of a kernel.

    Attributes:
        registers: Registers per thread.
        spilled: Bytes of register spills per thread: stores plus loads.
        stack: Bytes of local memory per thread, for example for arrays that are indexed.
        shared: Bytes of shared memory per thread block.
    """

    registers: int
    spilled: int = 0
    stack: int = 0
    shared: int = 0

    def __str__(self) -> str:
        text = f"{self.registers} registers, {self.shared} bytes shared, {self.spilled} bytes spilled"
        return f"{text}, {self.stack} bytes of stack" if self.stack else text


@frozen
class Compiled:
    """A module as PTX or CUBIN, and the resource usage of each kernel; empty for PTX, which is not assembled."""

    code: bytes
    usage: dict[str, Usage]


def compiled(source: str, architecture: str, options: Sequence[str], *, place: str = "cuda") -> Compiled:
    """Compile a source: to CUBIN for `sm_90`, to PTX for `compute_90`.

    Args:
        place: The device's name, for errors.

    Raises:
        KernelBuildError: NVRTC rejects the source or the architecture.
        DeviceUnavailableError: NVRTC is not installed.
    """
    is_ptx = architecture.startswith("compute_")
    flags = [f"--gpu-architecture={architecture}", "-w", *options, *(() if is_ptx else ("--ptxas-options=-v",))]
    code, log = NVRTC.compiled(source, architecture, flags, "PTX" if is_ptx else "CUBIN", place)
    return Compiled(code, dict(_usages(log)))


def architectures() -> tuple[int, ...]:
    """Return the compute capabilities that NVRTC supports, each as 10 times the major number plus the minor number."""
    count = c_int()
    NVRTC.call("GetNumSupportedArchs", byref(count))
    supported = (c_int * count.value)()
    NVRTC.call("GetSupportedArchs", supported)
    return tuple(supported)


def architecture_for(capability: int) -> str:
    """Return the architecture to compile for: the device's own, or PTX for the driver if the device is newer than NVRTC."""
    known = architectures()
    if capability == 90 and capability in known:
        return HOPPER
    return f"sm_{capability}" if capability in known else f"compute_{max(a for a in known if a <= capability)}"


def units_of(architecture: str) -> frozenset[str]:
    """Return the matrix units of an architecture as device features: `sm_90a` has those of `sm_80` and warpgroup products."""
    number = re.search(r"\d+", architecture)
    is_new = number is None or int(number[0]) >= int(AMPERE.removeprefix("sm_"))
    return frozenset((*((AMPERE,) if is_new else ()), *((HOPPER,) if architecture == HOPPER else ())))


def version() -> str:
    """Return the version of NVRTC: `13.0`."""
    return NVRTC.version


# ------------------------------------------------------------------------------------------------ details

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def _usages(log: str) -> Iterator[tuple[str, Usage]]:
    """Yield the name and the resource usage of each kernel in the assembler's log: a line of properties, then one of usage."""
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
    companions="libnvrtc-builtins.so*",
)
