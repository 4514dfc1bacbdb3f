"""The bound parameters of a program."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from attrs import field

from rlx_core.pipeline.backend import Params
from rlx_core.run.memory import Allocation, ProgramMemory
from rlx_core.run.plan import BufferId, ExecutionPlan
from rlx_core.system.records import define, frozen


@frozen(eq=False)
class BoundParams:
    """Parameters that are bound to the memory of one program; a frame serves the runs of one binding.

    Attributes:
        prepared: The prepared parameters that they come from.
        arrays: The arrays in the program's memory, by number.
        on_host: The arrays that are on the host too and that no run writes to, by number.
    """

    prepared: Params = field(factory=lambda: Params({}))
    arrays: Mapping[int, Any] = field(factory=dict)
    on_host: Mapping[int, np.ndarray] = field(factory=dict)


@define(eq=False)
class SharedState:
    """What clones of a program share: the parameters, replaced as a whole so that a run sees one version of them, and the
    constants once they are in the program's memory."""

    params: BoundParams = field(factory=BoundParams)
    constants: Mapping[int, Allocation] | None = None


def bind_params(
    plan: ExecutionPlan,
    memory: ProgramMemory,
    params: Mapping[str, Any],
    before: BoundParams,
    used: Collection[BufferId],
    read_by_host: Collection[BufferId],
) -> tuple[BoundParams, int]:
    """The parameters after a binding, and the bytes that were copied between the host and a device.

    Args:
        params: The prepared parameters by name; the ones that are missing keep the arrays of `before`.
        used: The buffers that must be in the memory of a device.
        read_by_host: The buffers of a device's program that steps on the host read.

    Raises:
        OutOfMemoryError: The memory is too small.
    """
    prepared = params if isinstance(params, Params) else Params(params)
    transferred, prepared.transferred = prepared.transferred, 0
    if len(prepared) != len(plan.params):
        # Copies of these arrays are valid here only if all parameters of this program are among them.
        prepared = Params({**before.prepared, **prepared}, prepared.immutable)
    arrays: dict[int, Any] = {}
    on_host: dict[int, np.ndarray] = {}
    for number, leaf in enumerate(plan.params):
        if leaf.name not in prepared:
            continue
        if leaf.is_donated and prepared[leaf.name] is before.prepared.get(leaf.name) and number in before.arrays:
            arrays[number] = before.arrays[number]  # runs have written to it; what was given is an older state
            continue
        buffer = BufferId("param", number)
        array, copy = memory.bind(leaf, prepared, is_used=buffer in used, is_read=buffer in read_by_host)
        if array is not None:
            arrays[number] = array
        if copy is not None:
            on_host[number] = copy
    transferred, prepared.transferred = transferred + prepared.transferred, 0
    return BoundParams(prepared, arrays, on_host), transferred
