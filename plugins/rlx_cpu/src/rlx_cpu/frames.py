"""Frames: the memory of one run, made once and used by every run after.

A frame is an arena and, for each value of the program, the array it lives in. Concurrent runs each take one. Inputs, outputs
and views of them are filled in per run, everything else once; a frame made before parameters were bound anew is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field

from rlx_core.ir.graph import Constant, Param, Value
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import Bindings
from rlx_core.pipeline.planning.alias import covers_root
from rlx_core.system.records import define, frozen
from rlx_cpu.arena import allocate, empty

__all__ = ["Frame", "Frames", "Params", "SharedParams", "address_of", "view"]


@frozen(eq=False)
class Params:
    """One binding of the parameters.

    Attributes:
        arrays: By place.
        version: A count that tells bindings apart.
        made: What programs made of the arrays; see `rlx_core.pipeline.backend.Bindings`.
    """

    arrays: Mapping[int, np.ndarray] = field(factory=dict)
    version: int = 0
    made: dict[Hashable, Any] = field(factory=dict)


@define(eq=False)
class Frame:
    """One run's arrays, by place.

    Attributes:
        arrays: Value by value, then the workspaces of steps.
        arena: The bytes that most of them lie in.
        params: Which binding of the parameters it holds.
        own: Whatever else a program keeps for a run.
    """

    arrays: list[Any]
    arena: np.ndarray
    params: Params
    own: Any = None


@define(eq=False)
class SharedParams:
    """What clones share: bound parameters. Replaced as a whole, so that a run sees one state of them."""

    params: Params = field(factory=Params)


class Frames:
    """The places of a program's values, and the frames that runs take and give back.

    Args:
        lir: The program.
        shared: The bound parameters.
        viewed: Places whose arrays are read in Python; all if `None`. Others that lie in the arena or in other bytes have
            an address alone.
        output: Makes the array of an output from its shape, its dtype and what it is called.
    """

    def __init__(
        self,
        lir: Lir,
        shared: SharedParams,
        viewed: Collection[int] | None = None,
        output: Callable[[tuple[int, ...], np.dtype, str], np.ndarray] = empty,
    ) -> None:
        self.lir = lir
        self._output = output
        self.shared = shared
        self.places: dict[Value, int] = {}
        for node in lir.graph.nodes:
            for value in node.results:
                self.places[value] = len(self.places)
        self.workspaces = {
            id(step): len(self.places) + i for i, step in enumerate(s for s in lir.steps if s.workspace is not None)
        }
        self.inputs = [self.places[entry.value] for entry in lir.manifest.inputs]
        self.params = {_leaf(v).label: self.places[v] for v in lir.graph.params}
        self.fresh = [self._layout(v) for v in dict.fromkeys(lir.own_roots)]
        per_run = set(lir.own_roots) | set(lir.graph.inputs)
        self._per_run_views = [
            (self.places[v], self.places[a.root], *self._layout(v)[1:], a.byte_offset, a.strides)
            for v, a in lir.aliases.items()
            if a.root in per_run and (viewed is None or self.places[v] in viewed)
        ]
        self._fixed_views = [
            (self.places[v], self.places[a.root], *self._layout(v)[1:], a.byte_offset, a.strides)
            for v, a in lir.aliases.items()
            if a.root not in per_run and (viewed is None or self.places[v] in viewed)
        ]
        self._starts = {self.places[v]: slot.offset for v, slot in lir.slots.items()}
        roots = {root for _, root, *_ in self._fixed_views}
        self._in_arena = [
            (self._layout(v), slot)
            for v, slot in lir.slots.items()
            if viewed is None or self.places[v] in viewed or self.places[v] in roots
        ]
        self._lent = [*self.inputs, *(f[0] for f in self.fresh), *(v[0] for v in self._per_run_views)]
        self._deliveries = self._plan_deliveries()
        self._frames: list[Frame] = []

    def bind(self, params: Mapping[str, np.ndarray]) -> None:
        """Bind parameters; contiguous arrays are used where they are."""
        before = self.shared.params
        bound = {self.params[name]: usable(array) for name, array in params.items()}
        # What others made of these values is true of this program's parameters where they are all of them.
        made = params.made if isinstance(params, Bindings) and len(bound) == len(self.params) else {}
        self.shared.params = Params({**before.arrays, **bound}, before.version + 1, made)

    def fill(self, frame: Frame, inputs: Sequence[np.ndarray]) -> None:
        """Put a run's inputs and fresh outputs into a frame."""
        arrays = frame.arrays
        for place, array in zip(self.inputs, inputs, strict=True):
            arrays[place] = usable(array)
        for place, shape, dtype in self.fresh:
            arrays[place] = self._output(shape, dtype, "an output")
        for place, root, shape, dtype, offset, strides in self._per_run_views:
            arrays[place] = view(arrays[root], shape, dtype, offset, strides)

    def deliver(self, frame: Frame) -> list[np.ndarray]:
        """The outputs as the caller gets them; donated buffers are overwritten last, after everything was read."""
        arrays = frame.arrays
        results = [arrays[p].copy() if kind == "copy" else arrays[p] for p, kind, _ in self._deliveries]
        for i, (place, kind, donor) in enumerate(self._deliveries):
            if kind == "donor" and place != donor:
                results[i] = arrays[place].copy()  # it may lie in a buffer that another donation overwrites
        for i, (_, kind, donor) in enumerate(self._deliveries):
            if kind == "donor" and results[i] is not arrays[donor]:
                np.copyto(arrays[donor], results[i])
                results[i] = arrays[donor]
        return results

    def outputs_of(self, frame: Frame) -> list[np.ndarray]:
        """The arrays that were made for the outputs of this run."""
        return [frame.arrays[place] for place, *_ in self.fresh]

    def take(self) -> Frame:
        """A frame for a run, with the parameters that are bound now."""
        params = self.shared.params
        while True:
            try:
                frame = self._frames.pop()  # no two threads get one
            except IndexError:
                return self._new(params)
            if frame.params is params:
                return frame

    def give_back(self, frame: Frame) -> None:
        """Return a frame after a run; it lets go of the caller's arrays."""
        for place in self._lent:
            frame.arrays[place] = None
        self._frames.append(frame)

    def addresses(self, frame: Frame, places: Collection[int]) -> dict[int, int]:
        """The addresses of values or workspaces that lie in the arena, or in arrays that the frame has, by place."""
        arena, starts = address_of(frame.arena), self._starts
        return {
            place: arena + starts[place] if place in starts else address_of(frame.arrays[place]) for place in places
        }

    # ----------------------------------------------------------------------------------------- details

    def _plan_deliveries(self) -> list[tuple[int, str, int]]:
        found: list[tuple[int, str, int]] = []
        for value, delivery in zip(self.lir.graph.outputs, self.lir.deliveries, strict=True):
            donor, at = delivery.donor, self.lir.aliases.get(value)
            is_there = (
                at is not None
                and at.root is donor
                and value.type == donor.type
                and covers_root(value, self.lir.aliases)
            )
            place = donor if is_there and donor is not None else value
            found.append((self.places[place], delivery.kind, -1 if donor is None else self.places[donor]))
        return found

    def _layout(self, value: Value) -> tuple[int, tuple[int, ...], np.dtype]:
        return self.places[value], value.type.static_shape, value.dtype.numpy

    def _new(self, params: Params) -> Frame:
        lir = self.lir
        arena = allocate(lir.arena_nbytes, lir.alignment)
        arrays: list[Any] = [None] * (len(self.places) + len(self.workspaces))
        for place, array in params.arrays.items():
            arrays[place] = array
        for node in lir.graph.nodes:
            if isinstance(node.op, Constant):
                arrays[self.places[node.result]] = node.op.value.array
        for (place, shape, dtype), slot in self._in_arena:
            arrays[place] = arena[slot.offset : slot.end].view(dtype).reshape(shape)
        for value, place in self.places.items():
            if value.type.size == 0:
                arrays[place] = np.empty(value.type.static_shape, value.dtype.numpy)
        for place, root, shape, dtype, offset, strides in self._fixed_views:
            arrays[place] = view(arrays[root], shape, dtype, offset, strides)
        for step in lir.steps:
            if step.workspace is not None:
                arrays[self.workspaces[id(step)]] = arena[step.workspace.offset : step.workspace.end]
        return Frame(arrays, arena, params)


def address_of(array: np.ndarray) -> int:
    """Where an array's first element is."""
    found: int = array.__array_interface__["data"][0]
    return found


def usable(array: np.ndarray) -> np.ndarray:
    """The array itself if it is dense and aligned, else a copy that is."""
    return array if array.flags.c_contiguous and array.flags.aligned else np.array(array, order="C", copy=True)


def view(
    root: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, byte_offset: int, strides: tuple[int, ...]
) -> np.ndarray:
    """An array of `shape` inside the bytes of the dense array `root`."""
    if 0 in shape:
        return np.empty(shape, dtype)
    # Through bytes, because bfloat16 arrays do not export a buffer of their own.
    elements = root.reshape(-1).view(np.uint8)[byte_offset:]
    usable = elements[: elements.size // dtype.itemsize * dtype.itemsize].view(dtype)
    return np.lib.stride_tricks.as_strided(usable, shape, strides)


def _leaf(value: Value) -> Param:
    assert isinstance(value.node.op, Param), "params of a graph are param nodes"
    return value.node.op
