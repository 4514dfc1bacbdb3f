"""Frames: the memory of one run and its prepared calls, made once and used by later runs; and the parameters that they bind.

A frame binds each buffer of the plan to an address. The arena, constants and parameters stay where they are; a run binds its
inputs and results, which updates only the arguments that refer to those. Concurrent runs each take a frame. A frame that was
made before parameters were bound again is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from attrs import field

from rlx_core.ir.placed import At
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.backend import Params
from rlx_core.run.code import Code
from rlx_core.run.memory import Allocation, ProgramMemory
from rlx_core.run.plan import ARENA, BufferId, ExecutionPlan, Location
from rlx_core.system.records import define, frozen

PER_RUN = ("input", "result")
"""The kinds of buffers that each run binds."""


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


@define(eq=False)
class Frame:
    """The memory of one run.

    Attributes:
        bound: Buffer → its address.
        params: The bound parameters that it was made for.
        owners: What keeps the memory of the frame's own buffers.
        calls: What `Code.prepare` made.
        staging: Memory of this frame for inputs and results whose arrays lie in another memory, by kind.
        views: Arrays on buffers that never move, by location; used where the host reads this memory in place.
    """

    bound: dict[BufferId, At]
    params: BoundParams
    memory: ProgramMemory
    owners: list[Any]
    calls: Any = None
    staging: dict[str, Any] = field(factory=dict)
    views: dict[Location, np.ndarray] = field(factory=dict)

    def at(self, location: Location) -> At:
        """The address of a value's first element."""
        base = self.bound[location.buffer]
        return At(base.buffer, base.offset + location.offset)

    def array(self, location: Location, type: TensorType) -> np.ndarray:
        """A value as an array on the host: in place in the host's memory, else a copy."""
        if not type.size:
            return np.empty(type.static_shape, type.dtype.numpy)
        if not self.memory.is_host or location.buffer.kind in PER_RUN:
            return self.memory.read(self.at(location), type, location.strides)
        view = self.views.get(location)
        if view is None or view.dtype != type.dtype.numpy or view.shape != type.static_shape:
            view = self.views[location] = self.memory.read(self.at(location), type, location.strides)
        return view


class Frames:
    """The frames of a program.

    Args:
        plan: The execution plan.
        memory: The memory that they are in.
        code: Whose calls they prepare.
        shared: The parameters and constants.
        used: The buffers that code or the host reads or writes in this memory.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        memory: ProgramMemory,
        code: Code,
        shared: SharedState,
        used: Callable[[], frozenset[BufferId]],
    ) -> None:
        self.plan, self.memory, self.code, self.shared = plan, memory, code, shared
        self._used = used
        self._free: list[Frame] = []
        self._per_run = [
            *(BufferId("input", i) for i in range(len(plan.inputs))),
            *(BufferId("result", i) for i in range(len(plan.results))),
        ]

    def take(self, params: BoundParams) -> Frame:
        """A frame for some bound parameters.

        Raises:
            OutOfMemoryError: There is not enough memory for another one.
        """
        while True:
            try:
                frame = self._free.pop()  # atomic: no two threads get one
            except IndexError:
                return self._new(params)
            if frame.params is params:
                return frame

    def release(self, frame: Frame) -> None:
        """Return a frame after a run. On the host it drops its references to the arrays of the caller."""
        if self.memory.is_host:
            for buffer in self._per_run:
                frame.bound.pop(buffer, None)
        self._free.append(frame)

    def trim(self) -> None:
        """Free the frames that no run uses."""
        while self._free:
            try:
                self._free.pop()
            except IndexError:  # a run has taken it
                return

    def bind(self, frame: Frame, buffer: BufferId, address: At) -> None:
        """Bind a buffer to another address and update the arguments that refer to it."""
        bound = frame.bound.get(buffer)
        # Buffers are compared by identity: `==` of a driver's buffers may compare their contents, as it does for bytearrays.
        if bound is not None and bound.buffer is address.buffer and bound.offset == address.offset:
            return
        frame.bound[buffer] = address
        arguments = self.code.arguments.get(buffer)
        if arguments is not None:
            self.code.place(frame.calls, arguments, address)

    def _new(self, params: BoundParams) -> Frame:
        plan, memory, shared, used = self.plan, self.memory, self.shared, self._used()
        memory.register(self)
        if shared.constants is None:
            numbers = frozenset(buffer.number for buffer in used if buffer.kind == "constant")
            shared.constants = memory.place_constants(plan, numbers)
        bound: dict[BufferId, At] = {BufferId("constant", i): each.at for i, each in shared.constants.items()}
        owners: list[Any] = []
        if plan.arena_nbytes or memory.is_host:
            arena = memory.arena(plan.arena_nbytes, plan.alignment)
            bound[ARENA] = arena.at
            owners.append(arena)
        for number, array in params.arrays.items():
            address = memory.at(array)
            assert address is not None, "parameters were bound to arrays of this memory"
            bound[BufferId("param", number)] = address
        frame = Frame(bound, params, memory, owners)
        if not memory.is_host:
            for buffer in self._per_run:
                if buffer in used:
                    frame.bound[buffer] = memory.staged(frame, plan, buffer)
        frame.calls = self.code.prepare(frame)
        return frame


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
        for each in (before.prepared, prepared):
            for name in each.recomputed:
                each.use(name)
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
