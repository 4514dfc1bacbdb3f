"""A target of test kernels, an executor that makes planning faults visible, and generated programs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Builder, Graph, GraphArgument, Literal, Value, as_results
from rlx_core.ir.lir import Lir
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.strides import dense_strides
from rlx_core.ir.types import TensorType
from rlx_core.ops.arithmetic import add, multiply, negative, subtract
from rlx_core.ops.conversion import cast
from rlx_core.ops.movement import Pad, concat, narrow, pad
from rlx_core.ops.structural import expand, reshape, sum_axes, transpose
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.pipeline.planning.memory import live_ranges

POISON = 0xA5


def make_target(
    *,
    accepts_strides: bool = True,
    writes_strides: bool = False,
    in_place: bool = True,
    workspace: int = 0,
    accepts_views: bool = True,
    alignment: int = 64,
) -> Target:
    """A target with a kernel for every op. Element-wise kernels are in-place safe; the others read densely, or not.

    They read as late and write as early as what they say of themselves allows: an in-place kernel writes every second
    element before it reads the others, and one that is not has spoilt its result before it reads anything.
    """
    table = KernelTable("fake")
    table.register(
        Op,
        name="generic",
        accepts_strides=accepts_strides,
        writes_strides=writes_strides,
        workspace=None if not workspace else lambda node: workspace,
    )(_spoiling)
    elementwise = (add.op, subtract.op, multiply.op, negative.op)
    table.register(
        *elementwise,
        name="elementwise",
        in_place=(0, 1) if in_place else (),
        accepts_strides=accepts_strides,
        writes_strides=writes_strides,
    )(_by_halves if in_place else _spoiling)
    table.register(
        Pad,
        name="around",
        accepts_strides=accepts_strides,
        writes_strides=writes_strides,
        completes_parts=writes_strides,
    )(_around if writes_strides else _spoiling)
    return Target("fake", table, alignment=alignment, accepts_views=accepts_views)


def _around(op: Op, x: np.ndarray, *, out: tuple[np.ndarray, ...], workspace: np.ndarray | None) -> None:
    """A padding, of what may lie in it already."""
    (target,) = out
    if np.shares_memory(x, target):
        inside = tuple(slice(lo, lo + n) for lo, n in zip(op.lo, x.shape, strict=True))
        assert target[inside].__array_interface__["data"] == x.__array_interface__["data"], "a part is where it belongs"
    (target[...],) = _results(op, [x])


def _spoiling(op: Op, *operands: np.ndarray, out: tuple[np.ndarray, ...], workspace: np.ndarray | None) -> None:
    """What the reference interpreter does for one op, into memory that holds nothing when it begins."""
    for target in out:
        target[...] = np.frombuffer(bytes([POISON] * target.itemsize), target.dtype)[0]
    if workspace is not None:
        workspace[:] = POISON
    for target, result in zip(out, _results(op, operands), strict=True):
        target[...] = np.asarray(result).astype(target.dtype)


def _by_halves(op: Op, *operands: np.ndarray, out: tuple[np.ndarray, ...], workspace: np.ndarray | None) -> None:
    """An element-wise op: every second element is written before the others are read."""
    (target,) = out
    alike = [np.broadcast_to(x, target.shape) for x in operands]
    for first in (0, 1):
        half = np.arange(target.size).reshape(target.shape) % 2 == first
        (result,) = _results(op, [x[half] for x in alike])
        target[half] = np.asarray(result).astype(target.dtype)


def _results(op: Op, operands: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    wide = [x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x for x in operands]
    with np.errstate(all="ignore"):
        return as_results(op.reference(*wide))


class Execution:
    """One run of a LIR on an arena whose free bytes are poisoned after every step."""

    def __init__(self, lir: Lir, target: Target, feeds: Mapping[str, np.ndarray]) -> None:
        self.lir, self.target = lir, target
        self.arena = np.full(lir.arena_nbytes, POISON, np.uint8)
        self.leaves: dict[Value, np.ndarray] = {}
        donated = {e.name for e in (*lir.manifest.inputs, *lir.manifest.params) if e.is_donated}
        for node in lir.graph.nodes:
            if node.is_leaf:
                is_fed = isinstance(node.op, GraphArgument)
                array = np.array(feeds[node.op.label] if is_fed else node.op.reference(), order="C")
                array.flags.writeable = is_fed and node.op.label in donated
                self.leaves[node.result] = array.reshape(node.type.static_shape)
        self.own = {v: np.full(v.type.static_shape, POISON, np.uint8).astype(v.dtype.numpy) for v in lir.own_roots}

    def run(self) -> list[np.ndarray]:
        ends = [[] for _ in range(len(self.lir.steps) + 1)]
        for r in live_ranges(self.lir):
            slot = self.lir.slots[r.values[0]] if r.values else self.lir.steps[r.step].workspace
            ends[r.death].append(slot)
        for index, step in enumerate(self.lir.steps):
            kernel = self.target.kernels.get(step.kernel)
            operands = [self.array(v) for v in step.node.present()]
            if not kernel.accepts_strides:
                assert all(x.flags.c_contiguous for x in operands), f"{kernel.name} was given a strided view"
            results = tuple(self.array(v, True) for v in step.node.results)
            if not kernel.writes_strides:
                assert all(x.flags.c_contiguous for x in results), f"{kernel.name} was to write with gaps"
            space = None if step.workspace is None else self.arena[step.workspace.offset : step.workspace.end]
            kernel.run(step.node.op, *operands, out=results, workspace=space)
            for slot in ends[index]:
                self.arena[slot.offset : slot.end] = POISON
        return self.deliver()

    def deliver(self) -> list[np.ndarray]:
        results: list[np.ndarray] = []
        stores: list[tuple[np.ndarray, np.ndarray]] = []
        for value, delivery in zip(self.lir.graph.outputs, self.lir.deliveries, strict=True):
            array = self.array(value)
            if delivery.kind == "donor":
                stores.append((self.leaves[delivery.donor], array.copy()))
                results.append(self.leaves[delivery.donor].view().reshape(value.type.static_shape))
            else:
                results.append(array.copy() if delivery.kind == "copy" else array)
        for leaf, array in stores:
            leaf[...] = array
        self.arena[:] = POISON  # what a later run would do to it
        return results

    def array(self, value: Value, is_written: bool = False) -> np.ndarray:
        """The elements of a value where the plan puts them."""
        alias = self.lir.aliases.get(value)
        root = value if alias is None else alias.root
        offset, strides = (0, dense_strides(value.type)) if alias is None else (alias.byte_offset, alias.strides)
        shape, kind = value.type.static_shape, value.dtype.numpy
        if 0 in shape:
            return np.empty(shape, kind)
        if root in self.lir.slots:
            return np.ndarray(shape, kind, self.arena, self.lir.slots[root].offset + offset, strides)
        base = self.leaves[root] if root in self.leaves else self.own[root]
        array = np.ndarray(shape, kind, base.reshape(-1).view(np.uint8), offset, strides)
        assert array.flags.writeable or not is_written, f"{value!r} is written into {root!r}, which is not donated"
        return array


def random_graph(seed: int, size: int = 24) -> tuple[Graph, dict[str, np.ndarray]]:
    """A program of element-wise ops, views, slices, joins and reductions over several dtypes, and arrays to feed it."""
    rng = random.Random(seed)
    arrays = np.random.default_rng(seed)
    builder = Builder(f"random{seed}")
    feeds: dict[str, np.ndarray] = {}
    values: list[Value] = []
    for i in range(rng.randrange(1, 4)):
        shape = tuple(rng.choice((1, 2, 3, 4, 16)) for _ in range(rng.randrange(1, 4)))
        type = TensorType(dtype(rng.choice(("f32", "f64", "f16", "i32"))), shape)
        make = builder.input if rng.random() < 0.6 else builder.param
        values.append(make(f"x{i}", type))
        feeds[f"x{i}"] = np.asarray(arrays.integers(-8, 8, shape)).astype(type.dtype.numpy)
    if rng.random() < 0.5:
        values.append(builder.constant(Literal(np.arange(-4, 20, dtype=np.float32).reshape(2, 12))))
    for _ in range(size):
        values.append(_random_node(rng, values))
    read = {v for node in builder.nodes for v in node.operands}
    unread = [v for v in values if v not in read]
    outputs = unread[: rng.randrange(1, 6)] + [rng.choice(values) for _ in range(rng.randrange(3))]
    return builder.finish(outputs), feeds


def _random_node(rng: random.Random, values: list[Value]) -> Value:
    x = rng.choice(values[-6:] if rng.random() < 0.7 else values)
    shape = x.type.static_shape
    axis = rng.randrange(len(shape)) if shape else 0
    alike = [v for v in values if v.type == x.type]
    kind = rng.choice(
        ("binary", "binary", "unary", "reshape", "transpose", "narrow", "concat", "pad", "expand", "cast", "sum")
    )
    if kind == "binary" and x.dtype.is_numeric:
        return rng.choice((add, subtract))(x, rng.choice(alike))
    if kind == "reshape":
        count = int(np.prod(shape))
        divisors = [d for d in range(1, count + 1) if count % d == 0] or [1]
        first = rng.choice(divisors)
        return reshape(x, (first, count // first) if rng.random() < 0.6 else (1, count))
    if kind == "transpose" and shape:
        return transpose(x, tuple(rng.sample(range(len(shape)), len(shape))))
    if kind == "narrow" and shape and shape[axis]:
        start = rng.randrange(shape[axis])
        step = rng.choice((1, 1, 2))
        longest = (shape[axis] - start + step - 1) // step
        return narrow(x, axis=axis, start=start, length=rng.randint(0 if rng.random() < 0.1 else 1, longest), step=step)
    if kind == "concat" and shape and 0 < int(np.prod(shape)) < 2000:
        return concat([rng.choice(alike) for _ in range(rng.randrange(1, 4))], axis=rng.choice((0, axis)))
    if kind == "pad" and shape and int(np.prod(shape)) < 2000:
        lo, hi = ([rng.choice((-1, 0, 0, 1, 16)) if n > 1 else 0 for n in shape] for _ in range(2))
        return pad(x, lo=tuple(lo), hi=tuple(hi))
    if kind == "expand" and int(np.prod(shape)) < 500:
        return expand(x, (rng.choice((1, 2, 3)), *shape))
    if kind == "cast":
        return cast(x, to=dtype(rng.choice(("f32", "f64", "i32", "bool", "f16", "i8")))) if rng.random() < 0.7 else x
    if kind == "sum" and shape and x.dtype.is_numeric:
        return sum_axes(x, axes=(axis,), keep_dim=rng.random() < 0.5)
    return negative(x) if x.dtype.is_numeric else cast(x, to=dtype("f32"))


@pytest.fixture
def fake_target() -> Callable[..., Target]:
    return make_target


@pytest.fixture
def generated() -> Callable[..., tuple[Graph, dict[str, np.ndarray]]]:
    return random_graph


@pytest.fixture
def execute() -> Callable[..., list[np.ndarray]]:
    def run(lir: Lir, target: Target, feeds: Mapping[str, Any]) -> list[np.ndarray]:
        return Execution(lir, target, feeds).run()

    return run


def toy_target(*rows, name="toy", accepts_views=True):
    """A target with one kernel a row: (op class, dtypes, conditions)."""
    table = KernelTable(name, plugin="toy")
    for op, dtypes, *when in rows:
        table.register(op, dtypes=dtypes, when=tuple(when), name=op.name.split(".")[1] + "_kernel")(nothing)
    return Target(name, table, accepts_views=accepts_views)


def nothing(op, *operands, out, workspace):
    """A kernel that is only ever chosen."""


@pytest.fixture
def target_with():
    return toy_target


@define_op(domain="test")
class Noise(Op):
    is_pure: ClassVar = False

    def infer(self, x):
        return x


@pytest.fixture
def noise():
    return Noise()
