"""Execution plans: the buffers of a program, and where its inputs, parameters, results and operands lie in them.

A *buffer* is memory with its address: the arena, each constant, each parameter, each input, and each buffer that is
allocated for a run and handed to the caller. A frame binds every buffer to an address.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import numpy as np

from rlx_core.ir.graph import Constant, Value, leaf_name
from rlx_core.ir.lir import Lir, placement
from rlx_core.ir.strides import Strides, dense_strides, is_dense
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen


class BufferId(NamedTuple):
    """A buffer of a program: its kind, and which one of that kind."""

    kind: Literal["arena", "constant", "param", "input", "result"]
    number: int = 0


ARENA: Final = BufferId("arena")


@frozen
class Location:
    """Where the elements of a value lie: bytes from the start of a buffer to the first one, and strides in bytes."""

    buffer: BufferId
    offset: int
    strides: Strides


@frozen
class PlanLeaf:
    """An input or a parameter."""

    name: str
    type: TensorType
    is_donated: bool = False


@frozen
class PlannedOutput:
    """How an output reaches the caller.

    Attributes:
        name: As the caller sees it.
        kind: As in `rlx_core.ir.lir.Delivery`.
        location: Where it lies after the last step; `None` for one without elements.
        donor: The buffer that comes back with the output in it, for the kind `donor`.
    """

    name: str
    type: TensorType
    kind: Literal["own", "copy", "donor"]
    location: Location | None
    donor: BufferId | None = None

    @property
    def is_in_place(self) -> bool:
        """Whether the last step leaves the output where the caller gets it: as the whole of the donated buffer."""
        location = self.location
        return (
            location is not None
            and location.buffer == self.donor
            and location.offset == 0
            and is_dense(self.type, location.strides)
        )


@frozen(eq=False)
class ExecutionPlan:
    """A program without its code.

    Attributes:
        name, target: For error messages.
        alignment: The arena begins at a multiple of this many bytes.
        constants: The arrays of the buffers of this kind.
        results: The types of the buffers that are allocated for each run and handed to the caller.
    """

    name: str
    target: str
    alignment: int
    arena_nbytes: int
    inputs: tuple[PlanLeaf, ...]
    params: tuple[PlanLeaf, ...]
    constants: tuple[np.ndarray, ...]
    results: tuple[TensorType, ...]
    outputs: tuple[PlannedOutput, ...]


class Locations:
    """The locations of all values of a planned LIR, and its execution plan.

    Attributes:
        result_roots: The values whose buffers are handed to the caller, in the order of their numbers.
    """

    def __init__(self, lir: Lir) -> None:
        self.lir = lir
        self.result_roots = tuple(dict.fromkeys(lir.own_roots))
        constants = [node for node in lir.graph.nodes if isinstance(node.op, Constant)]
        self._constants = tuple(node.op.value.array for node in constants)  # type: ignore[attr-defined]  # they are constants
        self._roots: dict[Value, tuple[BufferId, int]] = {v: (ARENA, slot.offset) for v, slot in lir.slots.items()}
        self._roots |= {node.result: (BufferId("constant", i), 0) for i, node in enumerate(constants)}
        self._roots |= {v: (BufferId("param", i), 0) for i, v in enumerate(lir.graph.params)}
        self._roots |= {entry.value: (BufferId("input", i), 0) for i, entry in enumerate(lir.manifest.inputs)}
        self._roots |= {v: (BufferId("result", i), 0) for i, v in enumerate(self.result_roots)}

    def of(self, value: Value) -> Location:
        """Where a value lies. One without elements has the start of the arena, which is never read."""
        alias = self.lir.aliases.get(value)
        strides = dense_strides(value.type) if alias is None else alias.strides
        return Location(*self.start(value), strides)

    def start(self, value: Value) -> tuple[BufferId, int]:
        """The buffer of a value, and bytes from its start to the first element."""
        if not value.type.size:
            return ARENA, 0
        alias = self.lir.aliases.get(value)
        if alias is None:
            return self._roots[value]
        buffer, start = self._roots[alias.root]
        return buffer, start + alias.byte_offset

    def name(self, param: BufferId) -> str:
        """The name of a parameter."""
        return leaf_name(self.lir.graph.params[param.number])

    def is_dense(self, value: Value) -> bool:
        """Whether a value's elements lie in order, without gaps."""
        return is_dense(value.type, placement(value, self.lir.aliases).strides)

    def plan(self) -> ExecutionPlan:
        """The execution plan."""
        lir = self.lir
        return ExecutionPlan(
            name=lir.graph.name,
            target=lir.target,
            alignment=lir.alignment,
            arena_nbytes=lir.arena_nbytes,
            inputs=tuple(PlanLeaf(e.name, e.type, e.is_donated) for e in lir.manifest.inputs),
            params=tuple(PlanLeaf(leaf_name(v), v.type, v in lir.donated) for v in lir.graph.params),
            constants=self._constants,
            results=tuple(v.type for v in self.result_roots),
            outputs=tuple(map(self._output, range(len(lir.graph.outputs)))),
        )

    def _output(self, number: int) -> PlannedOutput:
        value, delivery = self.lir.graph.outputs[number], self.lir.deliveries[number]
        donor = None if delivery.donor is None else self._roots[delivery.donor][0]
        location = self.of(value) if value.type.size else None
        return PlannedOutput(self.lir.manifest.outputs[number].name, value.type, delivery.kind, location, donor)
