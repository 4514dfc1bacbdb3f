"""Programs from packages: their code and plan were read from a file, and their parameters are its blobs."""

from __future__ import annotations

from typing import Any

from rlx_core.pipeline.backend import Params
from rlx_core.pipeline.packages import Blobs
from rlx_core.run.code import Calls, Code
from rlx_core.run.memory import ProgramMemory
from rlx_core.run.packaged.plan_form import PackedPlan
from rlx_core.run.program import PlannedProgram


def packaged_program(
    packed: PackedPlan, memory: ProgramMemory, code: Code, blobs: Blobs, on_device: dict[tuple[str, str], Any]
) -> PlannedProgram:
    """The program of a plan that was read, with its parameters.

    Args:
        code: Every step of the program.
        on_device: Copies of the blobs on devices, which the programs of a package share; see `Params`.

    Raises:
        FormatError: A blob is damaged.
    """
    parts = (Calls(tuple(sorted(code.steps))),) if code.steps else ()
    program = PlannedProgram(packed.plan, memory, code, lambda: parts)
    arrays = blobs.arrays(list(packed.blobs))
    params = Params({leaf.name: array for leaf, array in zip(packed.plan.params, arrays, strict=True)})
    params.on_device = on_device
    program.bind(params)
    return program
