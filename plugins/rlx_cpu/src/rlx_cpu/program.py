"""Running a LIR with NumPy: every step's arrays are views made once, so a run allocates only its outputs.

A *frame* is one run's memory: an arena and, for each value of the program, the array it lives in. Frames are kept and
reused; concurrent runs each take one. Inputs, outputs, and views of them are filled in per run, everything else once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import define, field, frozen

from rlx_core.errors import Fact, RlxError
from rlx_core.ir.graph import Constant, Param, Value
from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.backend import Program
from rlx_core.pipeline.kernels import KernelTable
from rlx_cpu.arena import allocate, empty

__all__ = ["NumpyProgram"]


@frozen(eq=False)
class Instruction:
    """A step with everything looked up: which function, on which places of a frame."""

    run: Callable[..., None]
    step: Step
    operands: tuple[int | None, ...]
    results: tuple[int, ...]
    workspace: int | None


@define(eq=False)
class Frame:
    """One run's arrays, by place."""

    arrays: list[Any]


@define(eq=False)
class Shared:
    """What clones share: bound parameters, by place. Replaced as a whole, so that a run sees one state of them."""

    params: dict[int, np.ndarray] = field(factory=dict)
    version: int = 0


class NumpyProgram(Program):
    """A LIR compiled to a list of NumPy calls."""

    def __init__(self, lir: Lir, kernels: KernelTable, shared: Shared | None = None) -> None:
        self._lir = lir
        self._kernels = kernels
        self._shared = shared or Shared()
        self._places: dict[Value, int] = {}
        for node in lir.graph.nodes:
            for value in node.results:
                self._places[value] = len(self._places)
        self._extra = len(self._places)
        self._instructions = [self._instruction(step) for step in lir.steps]
        self._inputs = [self._places[entry.value] for entry in lir.manifest.inputs]
        self._params = {entry.label: self._places[v] for v in lir.graph.params for entry in [_leaf(v)]}
        own = dict.fromkeys(lir.own_roots)
        self._fresh = [self._layout(v) for v in own]
        per_run = own.keys() | set(lir.graph.inputs)
        self._per_run_views = [
            (self._places[v], self._places[a.root], *self._layout(v)[1:], a.byte_offset, a.strides)
            for v, a in lir.aliases.items()
            if a.root in per_run
        ]
        self._lent = [*self._inputs, *(f[0] for f in self._fresh), *(v[0] for v in self._per_run_views)]
        self._deliveries = self._plan_deliveries()
        self._frames: list[tuple[int, Frame]] = []
        self._lock = threading.Lock()

    # ------------------------------------------------------------------------------------ public

    def bind(self, params: Mapping[str, np.ndarray]) -> None:
        """Bind parameters; contiguous arrays are used where they are."""
        bound = dict(self._shared.params)
        bound.update({self._params[name]: np.ascontiguousarray(array) for name, array in params.items()})
        self._shared.params = bound
        self._shared.version += 1

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        version, frame = self._take_frame()
        arrays = frame.arrays
        try:
            for place, array in zip(self._inputs, inputs, strict=True):
                arrays[place] = array if array.flags.c_contiguous else np.ascontiguousarray(array)
            for place, shape, dtype in self._fresh:
                arrays[place] = empty(shape, dtype, "an output")
            for place, root, shape, dtype, offset, strides in self._per_run_views:
                arrays[place] = view(arrays[root], shape, dtype, offset, strides)
            with np.errstate(all="ignore"):  # what NumPy would warn about is what the program says: NaN, infinities
                for instruction in self._instructions:
                    _execute(instruction, arrays)
            return self._deliver(arrays)
        finally:
            self._give_back(version, frame)

    def clone(self) -> NumpyProgram:
        return NumpyProgram(self._lir, self._kernels, self._shared)

    # ------------------------------------------------------------------------------------ building

    def _instruction(self, step: Step) -> Instruction:
        workspace = None
        if step.workspace is not None:
            workspace, self._extra = self._extra, self._extra + 1
        return Instruction(
            self._kernels.get(step.kernel).run,
            step,
            tuple(None if v is None else self._places[v] for v in step.node.operands),
            tuple(self._places[v] for v in step.node.results),
            workspace,
        )

    def _deliver(self, arrays: list[Any]) -> list[np.ndarray]:
        """The outputs as the caller gets them; donated buffers are overwritten last, after everything was read."""
        results = [arrays[p].copy() if kind == "copy" else arrays[p] for p, kind, _ in self._deliveries]
        for i, (place, kind, donor) in enumerate(self._deliveries):
            if kind == "donor" and place != donor:
                results[i] = arrays[place].copy()  # it may lie in a buffer that another donation overwrites
        for i, (_, kind, donor) in enumerate(self._deliveries):
            if kind == "donor" and results[i] is not arrays[donor]:
                np.copyto(arrays[donor], results[i])
                results[i] = arrays[donor]
        return results

    def _plan_deliveries(self) -> list[tuple[int, str, int]]:
        pairs = zip(self._lir.graph.outputs, self._lir.deliveries, strict=True)
        return [
            (self._places[value], delivery.kind, -1 if delivery.donor is None else self._places[delivery.donor])
            for value, delivery in pairs
        ]

    def _layout(self, value: Value) -> tuple[int, tuple[int, ...], np.dtype]:
        return self._places[value], value.type.static_shape, value.dtype.numpy

    def _new_frame(self) -> Frame:
        lir = self._lir
        arena = allocate(lir.arena_nbytes, lir.alignment)
        arrays: list[Any] = [None] * self._extra
        for place, array in self._shared.params.items():
            arrays[place] = array
        for node in lir.graph.nodes:
            if isinstance(node.op, Constant):
                arrays[self._places[node.result]] = node.op.value.array
        for value, slot in lir.slots.items():
            dense = arena[slot.offset : slot.end]
            arrays[self._places[value]] = dense.view(value.dtype.numpy).reshape(value.type.static_shape)
        for value in self._places:
            if value.type.size == 0:
                arrays[self._places[value]] = np.empty(value.type.static_shape, value.dtype.numpy)
        per_run = {place for place, *_ in self._per_run_views}
        for value, alias in lir.aliases.items():
            place, shape, dtype = self._layout(value)
            if place not in per_run:
                root = arrays[self._places[alias.root]]
                arrays[place] = view(root, shape, dtype, alias.byte_offset, alias.strides)
        for instruction in self._instructions:
            if instruction.workspace is not None:
                scratch = instruction.step.workspace
                assert scratch is not None, "an instruction has a workspace because its step has"
                arrays[instruction.workspace] = arena[scratch.offset : scratch.end]
        return Frame(arrays)

    def _take_frame(self) -> tuple[int, Frame]:
        with self._lock:
            while self._frames:
                version, frame = self._frames.pop()
                if version == self._shared.version:
                    return version, frame
            version = self._shared.version
        return version, self._new_frame()

    def _give_back(self, version: int, frame: Frame) -> None:
        for place in self._lent:
            frame.arrays[place] = None
        with self._lock:
            self._frames.append((version, frame))


def _execute(instruction: Instruction, arrays: list[Any]) -> None:
    operands = [None if p is None else arrays[p] for p in instruction.operands]
    results = instruction.results
    out = arrays[results[0]] if len(results) == 1 else tuple(arrays[p] for p in results)
    workspace = None if instruction.workspace is None else arrays[instruction.workspace]
    try:
        instruction.run(instruction.step.node.op, *operands, out=out, workspace=workspace)
    except RlxError as error:
        node = instruction.step.node
        raise error.with_fact(Fact("node", node.label, node.origin.source)) from None


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
