"""Where printed functions run in the tests: OpenCL C on PoCL, WGSL on lavapipe, CUDA C, HIP and MSL as C++ on the processor.

Each has a module with a class `Programs`: the functions of many kernels, built together, with `run(printed, buffers)`. What is
not installed skips the test that asks for it, with the command that would end the skip.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import pytest
from attrs import evolve, frozen

from rlx_core.codegen.faults import Report
from rlx_core.emit.emitters import Emitted
from rlx_gpu.codegen.cuda import CUDA, CUDA_TF32, CUDA_WGMMA, HIP
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.metal import METAL
from rlx_gpu.codegen.opencl import OPENCL
from rlx_gpu.codegen.walks import Machine
from rlx_gpu.codegen.wgsl import WGSL

__all__ = [
    "EXECUTORS",
    "ON_CUDA",
    "ON_CUDA_TF32",
    "ON_CUDA_WGMMA",
    "ON_HIP",
    "ON_LAVAPIPE",
    "ON_METAL",
    "ON_POCL",
    "Executor",
    "slow",
]

SUBGROUP = 32


class Programs(Protocol):
    """Built functions."""

    def run(self, printed: Emitted, buffers: Sequence[np.ndarray | None]) -> list[Report | None]:
        """Run a kernel on bytes; results are written in place. What was reported, by site."""


@frozen(repr=False)
class Executor:
    """A language and where it runs; groups share so many bytes there."""

    language: GpuDialect
    module: str
    shared_nbytes: int = 48 << 10

    def programs(self, printed: Iterable[Emitted]) -> Programs:
        """Functions, ready to run; skips where nothing runs them."""
        pytest.importorskip(self.module, exc_type=ImportError)
        return importlib.import_module(self.module).programs(printed, self.language)

    def machine(self, machine: Machine) -> Machine:
        """A machine as this language has it: its threads exchange registers if they can, and if there are enough."""
        machine = evolve(machine, shared_nbytes=min(machine.shared_nbytes, self.shared_nbytes))
        exchanges = self.language.exchanged_dtypes and machine.group >= SUBGROUP
        return evolve(machine, subgroup=SUBGROUP) if exchanges else machine

    def __repr__(self) -> str:
        return self.language.name


ON_POCL = Executor(OPENCL, "plugins.rlx_gpu.tests.codegen.pocl")
ON_LAVAPIPE = Executor(WGSL, "plugins.rlx_gpu.tests.codegen.lavapipe")
ON_CUDA = Executor(CUDA, "plugins.rlx_gpu.tests.codegen.processor")
ON_CUDA_TF32 = Executor(CUDA_TF32, "plugins.rlx_gpu.tests.codegen.processor")
ON_CUDA_WGMMA = Executor(CUDA_WGMMA, "plugins.rlx_gpu.tests.codegen.processor")
ON_HIP = Executor(HIP, "plugins.rlx_gpu.tests.codegen.processor")
ON_METAL = Executor(METAL, "plugins.rlx_gpu.tests.codegen.processor", shared_nbytes=32 << 10)


def slow(*executors: Executor) -> list[object]:
    """Executors that `make test` leaves to `make test-all`."""
    return [pytest.param(e, marks=pytest.mark.slow) for e in executors]


EXECUTORS = [ON_POCL, ON_CUDA, *slow(ON_METAL)]
"""For tests that are asked of every language of the C family: HIP is CUDA C but for four functions."""
