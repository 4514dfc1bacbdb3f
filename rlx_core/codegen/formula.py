"""An op as one loop kernel, before anything is known of memory: which element each value needs, as affine index maps.

The walk goes backwards from the results. Each axis of a result is an axis of the kernel; views change which element of their
operand is meant, so they cost nothing; a reduction reads its operand along the row axes. All reductions of one kernel must
run over the same axes of operands of one shape: softmax and the norms do. What does not fit is no formula, and its op
runs by another kernel or through its decomposition.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np
from attrs import field

from rlx_core.codegen.expand import PARTS, REDUCTIONS, SCALARS, expanded
from rlx_core.codegen.loops import Apply, Bound, Combine, Const, Index, Reduce
from rlx_core.codegen.scalars.long import LONG
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.dtypes import DType, i64, u64
from rlx_core.ir.graph import Constant, Graph, Input, Node, Value, infer
from rlx_core.ir.op import Op, operand_names
from rlx_core.ir.rewrite import needed_nodes
from rlx_core.ir.types import Shape, TensorType, normalize_axes, normalize_axis
from rlx_core.ops.arithmetic import add, divide, minimum, multiply
from rlx_core.ops.conversion import Cast
from rlx_core.ops.convolution.sliding import SlidingWindows
from rlx_core.ops.creation import DimValue, Full, Iota
from rlx_core.ops.derivatives.checkpoint import Later
from rlx_core.ops.indexing import Gather
from rlx_core.ops.movement import Narrow
from rlx_core.ops.reduction import Max, Mean, Min, Prod
from rlx_core.ops.selection import StopGradient, StraightThrough
from rlx_core.ops.structural import Expand, Reduction, Reshape, Sum, Transpose
from rlx_core.system.records import define, frozen

FUNCTION_FLOPS: Final = 10
"""Operations of a transcendental function."""


@frozen
class Affine:
    """The place `offset + scale·index[axis] + Σ scale_k·index[axis_k]` on an operand's axis; without an axis, `offset` alone.

    A place that data choose has no axis: `chosen` is the number of the term, a `Bound`, that is the index.

    Attributes:
        more: (axis, scale) of further axes, where several axes of the kernel walk one of the operand.
    """

    axis: int | None
    offset: Dim = 0
    scale: int = 1
    chosen: int | None = None
    more: tuple[tuple[int, int], ...] = ()

    @classmethod
    def sum(cls, terms: Sequence[tuple[int, int]], offset: Dim) -> Affine:
        """The place with these (axis, scale)."""
        first, *others = terms or ((None, 1),)
        return cls(first[0], offset, first[1], more=tuple(others))

    @property
    def terms(self) -> tuple[tuple[int, int], ...]:
        """(axis, scale) of every axis it moves with."""
        return () if self.axis is None else ((self.axis, self.scale), *self.more)


def progression_of(array: np.ndarray) -> tuple[int, int, int] | None:
    """Return (axis, start, step) if the elements of an array of integers or bools are `start + step·index[axis]`."""
    axes = [axis for axis, size in enumerate(array.shape) if size != 1]
    if array.dtype.kind not in "biu" or len(axes) != 1:
        return None
    line = [int(number) for number in array.reshape(-1)]
    start, step = line[0], line[1] - line[0]
    is_one = line == [start + step * i for i in range(len(line))] and -(2**63) <= start < 2**63
    return (axes[0], start, step) if is_one else None


Place = tuple[Affine, ...]

START = Affine(None)

Steps = Generator[tuple[Value, Place], int, int]
"""A coroutine that creates a term: it requests the terms it needs by value and place, and returns its number."""


@frozen
class Read:
    """An element of operand `operand`. `dynamic` are axes whose position is a value: (axis, value).

    Of a complex element it is the real part, or the imaginary one, which is part 1.
    """

    dtype: DType
    operand: int
    place: Place
    dynamic: tuple[tuple[int, int], ...] = ()
    part: int = 0


@frozen
class Write:
    """A value stored at a place of result `result`; of a complex result, its part 0 or 1."""

    result: int
    value: int
    place: Place
    part: int = 0


Term = Read | Const | Index | Apply | Bound | Reduce


@frozen
class Formula:
    """A kernel without memory: `Read`s stand where a kernel has loads, `Write`s for its stores.

    Attributes:
        extents: Sizes of the axes, possibly unknown yet.
        rows: The reduced axes.
        terms: The values.
        writes: One a result, or one a part of it.
    """

    name: str
    extents: Shape
    rows: tuple[int, ...]
    terms: tuple[Term, ...]
    writes: tuple[Write, ...]


class NoFormula(Exception):
    """The op does not fit into one kernel; the text is the reason, as a refusal continues it ("needs …")."""


_PART: Final = {"": 0, **{end: k for k, end in enumerate(PARTS)}}
"""Suffix of the name of an input → the number of the part of an operand."""

_COMBINE: dict[type[Op], Combine] = {Sum: "sum", Mean: "sum", Prod: "prod", Max: "max", Min: "min"}


@lru_cache(maxsize=2048)
def formula_of(op: Op, types: tuple[TensorType | None, ...], *, is_for_all: bool = False) -> Formula | None:
    """Return the op on operands of these types as one kernel, or `None` if it is not one.

    Args:
        is_for_all: Whether it must be valid for all unknown sizes, because code is generated from it; by default the caller
            only checks whether a kernel will exist.
    """
    graph = expanded(op, types)
    if graph is None:
        return None
    try:
        names = operand_names(op, len(types))
        positions = {name + end: (i, k) for end, k in _PART.items() for i, name in enumerate(names)}
        return _lowered(graph, op.name.partition(".")[2] or op.name, positions, is_for_all, infer(op, types))
    except NoFormula:
        return None


def flops_of(op: Op, types: tuple[TensorType | None, ...]) -> int | None:
    """Return the estimated operations of the op's kernel on one element, or `None` if it is not one kernel."""
    formula = formula_of(op, types)
    if formula is None:
        return None
    return sum(FUNCTION_FLOPS if type(t.op) in LONG else 1 for t in formula.terms if isinstance(t, Apply))


def _lowered(
    graph: Graph, name: str, positions: dict[str, tuple[int, int]], is_for_all: bool, results: Sequence[TensorType]
) -> Formula:
    extents, rows = _space(graph)
    walk = _Walk(extents, rows, positions, is_for_all)
    writes: list[Write] = []
    targets = [(i, part) for i, type in enumerate(results) for part in range(2 if type.dtype.is_complex else 1)]
    for (i, part), value in zip(targets, graph.outputs, strict=True):
        place = _output_place(value.shape, extents, rows, is_for_all)
        writes.append(Write(i, walk.term(value, place), place, part))
    return Formula(name, extents, rows, tuple(walk.terms), tuple(writes))


def _space(graph: Graph) -> tuple[Shape, tuple[int, ...]]:
    """Return the index space: the operand's dims of the reductions, or the result's if there are no reductions."""
    live = _needed(graph)
    reductions = [n for n in live if isinstance(n.op, REDUCTIONS) and _axes(n)]
    if not reductions:
        shapes = [v.shape for v in graph.outputs]
        if any(shape != shapes[0] for shape in shapes):
            raise NoFormula("results of one shape")
        return shapes[0], ()
    spaces = [(_operand(n).shape, _axes(n)) for n in reductions]
    if any(space != spaces[0] for space in spaces):
        raise NoFormula("reductions over the same axes of one shape")
    return spaces[0]


def _needed(graph: Graph) -> list[Node]:
    needed = needed_nodes(graph.nodes, graph.outputs)
    return [n for n in graph.nodes if n in needed]


def _operand(node: Node) -> Value:
    operand = node.operands[0]
    assert operand is not None, "views and reductions have one operand"
    return operand


def _axes(node: Node) -> tuple[int, ...]:
    assert isinstance(node.op, Reduction)
    return normalize_axes(node.op.axes, _operand(node).ndim)


def _output_place(shape: Shape, extents: Shape, rows: tuple[int, ...], is_for_all: bool) -> Place:
    """Return the place of a result's element: the result has all axes, the rows' with size 1, or omits the rows."""
    free_axes = [i for i in range(len(extents)) if i not in rows]
    if len(shape) == len(extents) and all(shape[i] == extents[i] for i in free_axes):
        has_full_rows = all(shape[i] == extents[i] for i in rows)
        if has_full_rows:
            return tuple(Affine(i) for i in range(len(extents)))
        if all(shape[i] == 1 for i in rows):
            return tuple(START if i in rows else Affine(i) for i in range(len(extents)))
    if shape == tuple(extents[i] for i in free_axes):
        return tuple(Affine(i) for i in free_axes)
    # The same elements in other dims: an axis in two, or two as one.
    is_whole = not rows or product(shape) == product(extents)
    axes = range(len(extents)) if is_whole else free_axes
    return _reshaped(tuple(Affine(i) for i in axes), shape, tuple(extents[i] for i in axes), extents, is_for_all)


@define
class _Walk:
    """The terms of a formula, made on demand from the results backwards; equal terms are one."""

    extents: Shape
    rows: tuple[int, ...]
    positions: dict[str, tuple[int, int]]
    is_for_all: bool
    terms: list[Term] = field(factory=list)
    _numbers: dict[Any, int] = field(factory=dict)
    _seen: dict[tuple[Value, Place], int] = field(factory=dict)

    def add(self, term: Term) -> int:
        # Constants compare as numbers, but -0.0 and 0.0, 1 and True are different terms.
        key = (type(term), repr(term)) if isinstance(term, Const) else term
        if key not in self._numbers:
            self._numbers[key] = len(self.terms)
            self.terms.append(term)
        return self._numbers[key]

    def term(self, value: Value, place: Place) -> int:
        """The number of the term that is the element of `value` at `place`. Without recursion, because chains are long."""
        waiting = [((value, place), self._term(value, place))]
        number: int | None = None
        while waiting:
            key, steps = waiting[-1]
            try:
                requested = next(steps) if number is None else steps.send(number)
            except StopIteration as end:
                waiting.pop()
                number = self._seen[key] = end.value
                continue
            number = self._seen.get(requested)
            if number is None:
                waiting.append((requested, self._term(*requested)))
        assert number is not None, "the walk ends with the term that it began with"
        return number

    def _term(self, value: Value, place: Place) -> Steps:
        node, op = value.node, value.node.op
        if isinstance(op, Input):
            chosen = tuple((axis, index.chosen) for axis, index in enumerate(place) if index.chosen is not None)
            known = tuple(START if index.chosen is not None else index for index in place)
            number, part = self.positions[op.label]
            return self.add(Read(value.dtype, number, known, chosen, part))
        if isinstance(op, Constant):
            return self._constant(op, place)
        if isinstance(op, DimValue):
            return self.add(Const(i64, _sized(op.size)))
        if isinstance(op, Iota):
            return self._iota(op, place)
        if isinstance(op, Gather):
            return (yield from self._gather(node, op, place))
        if isinstance(op, REDUCTIONS):
            return (yield from self._reduce(node, place))
        if isinstance(op, SCALARS):
            args: tuple[int, ...] = ()
            for operand in node.present():
                args = (*args, (yield operand, _broadcast(place, operand.type, value.ndim)))
            if isinstance(op, Cast) and self.terms[args[0]].dtype is op.to:
                return args[0]
            return self.add(Apply(value.dtype, op, args))
        return (yield _operand(node), self._through(node, place))

    def _constant(self, op: Constant, place: Place) -> int:
        array, dtype = op.value.array, op.value.dtype
        if array.size == 1:
            return self.add(Const(dtype, array.reshape(()).item()))
        progression = progression_of(array)
        if progression is None:
            raise NoFormula("constants that are single numbers or progressions of integers")
        axis, start, step = progression
        return self._cast(self._multiple(place[axis], start, step), dtype)

    def _iota(self, op: Iota, place: Place) -> int:
        return self._cast(self._multiple(place[normalize_axis(op.axis, len(place))], 0, 1), op.dtype)

    def _multiple(self, index: Affine, start: int, step: int) -> int:
        """Return `start + step·index` as i64."""
        if index.chosen is not None:
            scaled = index.chosen if step == 1 else self._i64(multiply.op, index.chosen, self.add(Const(i64, step)))
            return scaled if start == 0 else self._i64(add.op, scaled, self.add(Const(i64, start)))
        if not isinstance(index.offset, int):
            raise NoFormula("known offsets")
        offset = start + step * index.offset
        if index.axis is None:
            return self.add(Const(i64, offset))
        total = self.add(Index(i64, index.axis, offset, step * index.scale))
        for axis, scale in index.more:
            total = self._i64(add.op, total, self.add(Index(i64, axis, scale=step * scale)))
        return total

    def _i64(self, op: type[Op], *args: int) -> int:
        return self.add(Apply(i64, op(), args))

    def _cast(self, term: int, to: DType) -> int:
        return term if self.terms[term].dtype is to else self.add(Apply(to, Cast(to), (term,)))

    def _gather(self, node: Node, op: Gather, place: Place) -> Steps:
        table, indices = node.present()
        if op.oob == "fill":
            raise NoFormula("no fill")
        axis, batch = normalize_axis(op.axis, table.ndim), op.batch_dims
        count = indices.ndim - batch
        size = table.shape[axis]
        if isinstance(size, int) and size < 1:
            raise NoFormula("a table with elements")
        index = yield indices, (*place[:batch], *place[axis : axis + count])
        if self.terms[index].dtype is u64:
            # As a signed number an index of 2⁶³ or more would be negative, and its nearest end the first.
            largest = self.add(Const(u64, int(np.iinfo(np.int64).max)))
            index = self.add(Apply(u64, minimum.op(), (index, largest)))
        bound = self.add(Bound(i64, self._cast(index, i64), _sized(size), op.oob == "error"))
        # A table that is computed is computed at the element alone: of a row of log-probabilities, the label's.
        return (yield table, (*place[:axis], Affine(None, chosen=bound), *place[axis + count :]))

    def _reduce(self, node: Node, place: Place) -> Steps:
        op, operand, axes = node.op, _operand(node), _axes(node)
        assert isinstance(op, Reduction)
        remaining = iter(p for i, p in enumerate(place) if not (op.keep_dim and i in axes))
        operand_place = tuple(Affine(i) if i in axes else next(remaining) for i in range(operand.ndim))
        if axes and any(p != Affine(i) and operand.shape[i] != 1 for i, p in enumerate(operand_place)):
            raise NoFormula("rows in the axes that are reduced")
        arg = self._cast((yield operand, operand_place), node.type.dtype)
        if not axes:
            return arg
        total = self.add(Reduce(node.type.dtype, _COMBINE[type(op)], arg))
        if not isinstance(op, Mean):
            return total
        count = product([operand.shape[i] for i in axes])
        share = self.add(Const(node.type.dtype, float(count) if isinstance(count, int) else _sized(count)))
        return self.add(Apply(node.type.dtype, divide.op(), (total, share)))

    def _through(self, node: Node, place: Place) -> Place:
        """The place in a view's operand that an element of the view is."""
        op, source = node.op, _operand(node)
        if isinstance(op, StopGradient | StraightThrough | Later):
            return place
        if isinstance(op, Full):
            return ()
        if isinstance(op, Expand):
            return _broadcast(place, source.type, node.type.rank)
        if isinstance(op, Transpose):
            perm = [normalize_axis(p, source.ndim) for p in op.perm]
            return tuple(place[perm.index(i)] for i in range(source.ndim))
        if isinstance(op, Narrow):
            axis = normalize_axis(op.axis, source.ndim)
            index = place[axis]
            if index.chosen is not None:
                raise NoFormula("slices of axes that no data index")
            inner = Affine.sum([(a, scale * op.step) for a, scale in index.terms], op.start + index.offset * op.step)
            return (*place[:axis], inner, *place[axis + 1 :])
        if isinstance(op, SlidingWindows):
            return _slid(place, op, source.ndim)
        assert isinstance(op, Reshape), f"{op.name} is not a view of the loop language"
        return _reshaped(place, source.shape, node.type.shape, self.extents, self.is_for_all)


def _slid(place: Place, op: SlidingWindows, rank: int) -> Place:
    """The place of cell `k` of window `o` along each axis that windows slide along."""
    windows = op.windows()
    lead = rank - windows.rank
    cells, positions = place[lead : lead + windows.rank], place[lead + windows.rank :]
    if any(position.chosen is not None for position in (*cells, *positions)):
        raise NoFormula("windows that no data choose")
    steps = zip(cells, positions, windows.dilation, windows.stride, strict=True)
    return (
        *place[:lead],
        *(
            Affine.sum(
                [*((a, k * d) for a, k in cell.terms), *((a, k * s) for a, k in position.terms)],
                cell.offset * d + position.offset * s,
            )
            for cell, position, d, s in steps
        ),
    )


def _sized(size: Dim) -> int:
    """Return a size as terms contain it; an unknown one remains an expression until `sizes.py` or a binding replaces it."""
    return cast(int, size)


def _broadcast(place: Place, type: TensorType, rank: int) -> Place:
    """The place in an operand that is aligned from the right and repeated along its axes of size 1."""
    aligned = place[rank - type.rank :]
    return tuple(START if d == 1 else p for d, p in zip(type.shape, aligned, strict=True))


def _reshaped(place: Place, source: Shape, result: Shape, extents: Shape, is_for_all: bool) -> Place:
    """The place before a reshape from `source` to `result`: axes of size 1 come and go, others split and merge."""
    moving = [(p, d) for p, d in zip(place, result, strict=True) if d != 1]
    regrouped: list[Affine] = []
    taken = 0
    for old, count in _groups([d for d in source if d != 1], [d for _, d in moving]):
        regrouped += _regrouped(moving[taken : taken + count], old, extents, is_for_all)
        taken += count
    places = iter(regrouped)
    return tuple(START if d == 1 else next(places) for d in source)


def _groups(source: Sequence[Dim], result: Sequence[Dim]) -> Iterator[tuple[list[Dim], int]]:
    """The shortest runs of axes with equal numbers of elements: those of the source, and how many of the result."""
    left, right = list(source), list(result)
    while left and right:
        old, new = [left.pop(0)], [right.pop(0)]
        while (have := product(old)) != (want := product(new)):
            is_known = isinstance(have, int) and isinstance(want, int) and have and want
            # Only known sizes can be decomposed into factors, except for one axis that is the product of several.
            if not is_known and (left or len(old) > 1):
                raise NoFormula("reshapes of known sizes")
            shorter, more = (old, left) if is_known and have < want else (new, right)
            if not more:
                raise NoFormula("reshapes that keep all elements")
            shorter.append(more.pop(0))
        yield old, len(new)
    if left or right:
        raise NoFormula("reshapes that keep all elements")


def _regrouped(
    places: Sequence[tuple[Affine, Dim]], source: Sequence[Dim], extents: Shape, is_for_all: bool
) -> list[Affine]:
    """The places on a run of axes, from those on the axes that the run was reshaped to and their sizes."""
    if len(places) == len(source) == 1:
        return [places[0][0]]
    if any(p.chosen is not None for p, _ in places):
        raise NoFormula("reshapes of axes that no data index")
    if not all(isinstance(size, int) for size in (*source, *(size for _, size in places))):
        if is_for_all:
            raise NoFormula("reshapes of known sizes")
        return [START] * len(source)  # asked only whether there is a formula
    terms: list[tuple[int, int]] = []
    offset: Dim = 0
    stride = 1
    for p, size in reversed(places):
        terms = [*((axis, scale * stride) for axis, scale in p.terms), *terms]
        offset = offset + p.offset * stride
        stride *= size.__index__()
    indices: list[Affine] = []
    for size in reversed(source[1:]):
        inner, terms, offset = _divided(terms, offset, size.__index__(), extents)
        indices.append(inner)
    return [Affine.sum(terms, offset), *reversed(indices)]


def _divided(
    terms: list[tuple[int, int]], offset: Dim, size: int, extents: Shape
) -> tuple[Affine, list[tuple[int, int]], Dim]:
    """A place on two axes taken as one: the place on the inner one, of `size` elements, then terms and offset on the outer."""
    if not isinstance(offset, int):
        raise NoFormula("known offsets")
    within = [(axis, scale) for axis, scale in terms if scale % size]
    last = offset % size
    for axis, scale in within:
        extent = extents[axis]
        if scale < 0 or not isinstance(extent, int):
            raise NoFormula("known steps forward")
        last += scale * max(extent - 1, 0)
    if last >= size:
        raise NoFormula("rows that do not wrap around")
    outer = [(axis, scale // size) for axis, scale in terms if scale % size == 0]
    return Affine.sum(within, offset % size), outer, offset // size
