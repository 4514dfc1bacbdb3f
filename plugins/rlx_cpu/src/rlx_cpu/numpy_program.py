"""Programs of the CPU without native code: every step is a function of NumPy or SciPy."""

from __future__ import annotations

from rlx_core.ir.lir import Lir
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.run.code import HostCode
from rlx_core.run.memory import CANARY, HostMemory
from rlx_core.run.program import PlannedProgram, planned_program


def numpy_program(lir: Lir, kernels: KernelTable, *, poison: bool = False) -> PlannedProgram:
    """The program of a plan; with `poison` it checks memory after every step."""

    def nested(number: int, name: str, plan: Lir) -> PlannedProgram:
        return numpy_program(plan, kernels, poison=poison)

    memory = HostMemory("cpu", CANARY if poison else 0)
    return planned_program(lir, kernels, memory, lambda planned, locations: HostCode(), nested)
