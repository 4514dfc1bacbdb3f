"""The bound parameters of a program."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

import numpy as np
from attrs import field

from rlx_core.pipeline.select.backend import Bindings
from rlx_core.run.memory import Allocation, ProgramMemory
from rlx_core.run.plan import BufferId, ExecutionPlan
from rlx_core.system.records import define, frozen

__all__ = ["Params", "SharedState", "bind_params"]


@frozen(eq=False)
class Params:
    """One binding of the parameters; a frame serves the runs of one binding.

    Attributes:
        arrays: The arrays in the program's memory, by number.
        on_host: The arrays that are on the host too and that no run writes to, by number.
        given: The arrays that the caller bound, by name.
        made: What programs that share the binding derived from it; see `rlx_core.pipeline.select.backend.Bindings`.
        immutable: The numbers of the arrays that are read-only.
    """

    arrays: Mapping[int, Any] = field(factory=dict)
    on_host: Mapping[int, np.ndarray] = field(factory=dict)
    given: Mapping[str, Any] = field(factory=dict)
    made: dict[Hashable, Any] = field(factory=dict)
    immutable: frozenset[int] = frozenset()


@define(eq=False)
class SharedState:
    """What clones of a program share: the parameters, replaced as a whole so that a run sees one state of them, and the
    constants once they are in the program's memory."""

    params: Params = field(factory=Params)
    constants: Mapping[int, Allocation] | None = None


def bind_params(
    plan: ExecutionPlan,
    memory: ProgramMemory,
    params: Mapping[str, Any],
    before: Params,
    used: Collection[BufferId],
    read_by_host: Collection[BufferId],
) -> tuple[Params, int]:
    """The parameters after a binding, and the bytes that were copied between the host and a device.

    Args:
        params: The arrays by name; parameters that are missing keep those of `before`.
        used: The buffers that must be in the memory of a device.
        read_by_host: The buffers of a device's program that steps on the host read.

    Raises:
        OutOfMemoryError: The memory is too small.
    """
    bindings = params if isinstance(params, Bindings) else Bindings(params)
    bound_arrays = {**before.given, **bindings}
    # Data that other programs derived from these arrays are valid here only if all parameters of this program are among them.
    created = bindings.made if len(bindings) == len(plan.params) else {}
    transferred, bindings.crossed = bindings.crossed, 0
    arrays: dict[int, Any] = {}
    on_host: dict[int, np.ndarray] = {}
    for number, leaf in enumerate(plan.params):
        if leaf.name not in bound_arrays:
            continue
        array = bound_arrays[leaf.name]
        if leaf.is_donated and array is before.given.get(leaf.name) and number in before.arrays:
            arrays[number] = before.arrays[number]  # runs have written to it; what was given is an older state
            continue
        buffer = BufferId("param", number)
        bound = memory.bind(leaf, array, created, is_used=buffer in used, is_read=buffer in read_by_host)
        transferred += bound.transferred
        if bound.array is not None:
            arrays[number] = bound.array
        if bound.on_host is not None:
            on_host[number] = bound.on_host
    immutable = frozenset(n for n, leaf in enumerate(plan.params) if leaf.name in bindings.immutable)
    return Params(arrays, on_host, bound_arrays, created, immutable), transferred
