"""Programs of the CPU without native code: every step is a function of NumPy or SciPy."""

from __future__ import annotations

from rlx_core.ir.lir import Lir
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.run.code import HostCode
from rlx_core.run.memory import HostMemory
from rlx_core.run.parts import parts_of
from rlx_core.run.plan import Locations
from rlx_core.run.poison import CANARY, Guard, with_gaps
from rlx_core.run.program import PlannedProgram

__all__ = ["numpy_program"]


def numpy_program(lir: Lir, kernels: KernelTable, *, poison: bool = False) -> PlannedProgram:
    """The program of a plan; with `poison` it checks memory after every step."""
    if poison:
        lir = with_gaps(lir)
    locations, code = Locations(lir), HostCode()

    def nested(number: int, name: str, plan: Lir) -> PlannedProgram:
        return numpy_program(plan, kernels, poison=poison)

    return PlannedProgram(
        locations.plan(),
        HostMemory("cpu", CANARY if poison else 0),
        code,
        lambda: tuple(parts_of(lir, locations, kernels, code, nested, is_single=True)),
        guard=Guard(lir) if poison else None,
        lir=lir,
    )
