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
from rlx_core.ir.graph import Constant, Input, Param, Value
from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.backend import Program
from rlx_core.pipeline.kernels import KernelTable
from rlx_cpu.arena import allocate

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
        self._outputs = self._plan_outputs()
        self._per_run = self._plan_per_run_views()
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
        for place, array in zip(self._inputs, inputs, strict=True):
            arrays[place] = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        for place, shape, dtype in self._outputs.fresh:
            arrays[place] = np.empty(shape, dtype)
        for place, root, shape, dtype, offset, strides in self._per_run:
            arrays[place] = view(arrays[root], shape, dtype, offset, strides)
        try:
            with np.errstate(all="ignore"):  # what NumPy would warn about is what the program says: NaN, infinities
                for instruction in self._instructions:
                    _execute(instruction, arrays)
            return [arrays[p].copy() if is_copied else arrays[p] for p, is_copied in self._outputs.returned]
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

    def _is_per_run(self, value: Value) -> bool:
        """Whether the bytes of `value` are another array on each run: an input's or an output's own."""
        root = self._lir.root_of(value)
        return isinstance(root.node.op, Input) or (not _is_leaf(root) and root not in self._lir.slots)

    def _plan_outputs(self) -> Outputs:
        fresh = [
            (self._places[v], v.type.static_shape, v.dtype.numpy)
            for node in self._lir.graph.nodes
            for v in node.results
            if not _is_leaf(v) and v not in self._lir.slots and v not in self._lir.aliases
        ]
        donated = {e.value for e in self._lir.manifest.inputs if e.is_donated}
        returned: list[tuple[int, bool]] = []
        handed_out: set[Value] = set()
        for entry in self._lir.manifest.outputs:
            root = self._lir.root_of(entry.value)
            # A caller's array must not share bytes with the arena, with a weight, or with another output.
            is_own = self._is_per_run(entry.value) and (not isinstance(root.node.op, Input) or root in donated)
            returned.append((self._places[entry.value], not is_own or root in handed_out))
            handed_out.add(root)
        return Outputs(fresh, returned)

    def _plan_per_run_views(self) -> list[tuple[int, int, tuple[int, ...], np.dtype, int, tuple[int, ...]]]:
        return [
            (self._places[v], self._places[a.root], v.type.static_shape, v.dtype.numpy, a.byte_offset, a.strides)
            for v, a in self._lir.aliases.items()
            if self._is_per_run(v)
        ]

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
        for value, alias in lir.aliases.items():
            if not self._is_per_run(value):
                root = arrays[self._places[alias.root]]
                shape, dtype = value.type.static_shape, value.dtype.numpy
                arrays[self._places[value]] = view(root, shape, dtype, alias.byte_offset, alias.strides)
        for instruction in self._instructions:
            if instruction.workspace is not None:
                slot = instruction.step.workspace
                assert slot is not None, "an instruction has a workspace because its step has"
                arrays[instruction.workspace] = arena[slot.offset : slot.end]
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
        for place in self._inputs:
            frame.arrays[place] = None
        for place, *_ in (*self._outputs.fresh, *self._per_run):
            frame.arrays[place] = None
        with self._lock:
            self._frames.append((version, frame))


@frozen
class Outputs:
    """Which places get an array of their own in each run, and what is returned: place and whether it is copied."""

    fresh: list[tuple[int, tuple[int, ...], np.dtype]]
    returned: list[tuple[int, bool]]


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


def _is_leaf(value: Value) -> bool:
    return isinstance(value.node.op, Input | Param | Constant)


def _leaf(value: Value) -> Param:
    assert isinstance(value.node.op, Param), "params of a graph are param nodes"
    return value.node.op
