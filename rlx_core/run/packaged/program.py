"""Programs from packages: their code and plan were read from a file, and their parameters are its blobs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from rlx_core.pipeline.select.backend import Bindings
from rlx_core.pipeline.select.packages import Blobs
from rlx_core.run.code import Calls, Code
from rlx_core.run.memory import ProgramMemory
from rlx_core.run.packaged.plan_form import PackedPlan
from rlx_core.run.program import PlannedProgram

__all__ = ["packaged_program"]


def packaged_program(
    packed: PackedPlan, memory: ProgramMemory, code: Code, blobs: Blobs, created: dict[Hashable, Any]
) -> PlannedProgram:
    """The program of a plan that was read, with its parameters.

    Args:
        code: Every step of the program.
        created: Data that the package's programs derived from its blobs: copies on a device.

    Raises:
        FormatError: A blob is damaged.
    """
    parts = (Calls(tuple(sorted(code.steps))),) if code.steps else ()
    program = PlannedProgram(packed.plan, memory, code, lambda: parts)
    arrays = blobs.arrays(list(packed.blobs))
    bindings = Bindings({leaf.name: array for leaf, array in zip(packed.plan.params, arrays, strict=True)})
    bindings.made = created
    program.bind(bindings)
    return program
