"""A formula with memory: where operands and results lie, as strides and offsets in bytes, becomes a kernel.

Axes of size 1 are dropped and neighbours that every access walks through as if they were one axis are merged, so that
equal memory means equal kernels: a dense `[8, 128, 384]` is one axis of 393216.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from rlx_core.codegen.formula import Affine, Formula, Read
from rlx_core.codegen.loops import Apply, Bound, Buffer, Const, Index, Kernel, Load, Reduce, Scalar, Store, operands_of
from rlx_core.codegen.places import Place
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.strides import Strides
from rlx_core.ops.arithmetic import add
from rlx_core.system.records import evolve, frozen


def kernel_of(formula: Formula, operands: Sequence[Place | None], results: Sequence[Place]) -> Kernel:
    """The kernel that computes `formula` on operands and results that lie there.

    The buffers of the kernel are all operands in order, absent ones too, then all results.
    """
    return simplified(whole_kernel(formula, operands, results))


def axes_of(formula: Formula) -> tuple[int, ...]:
    """The axes of a formula in the order of a kernel's: those of its results, then its rows."""
    return (*(a for a in range(len(formula.extents)) if a not in formula.rows), *formula.rows)


def whole_kernel(
    formula: Formula,
    operands: Sequence[Place | None],
    results: Sequence[Place],
    sizes: DimBinding = DimBinding(),  # noqa: B008  # immutable
) -> Kernel:
    """Return the same kernel with all axes of the formula, its results' first, then rows; `sizes` binds unknown sizes."""
    order = axes_of(formula)
    new = {old: i for i, old in enumerate(order)}
    loads, written = accesses_of(formula, operands, results, sizes)

    values: list[Scalar] = []
    for i, term in enumerate(formula.terms):
        if isinstance(term, Read):
            access = loads[i]
            if isinstance(access, Access):
                dynamic = tuple((v, stride) for (_, v), stride in zip(term.dynamic, access.chosen, strict=True))
                values.append(Load(term.operand, term.dtype, access.strides, access.offset, dynamic))
            else:
                values.append(Const(term.dtype, access))
        elif isinstance(term, Index):
            values.append(evolve(term, axis=new[term.axis]))
        else:
            values.append(term)
    stores = [
        Store(len(operands) + w.result, w.value, access.strides, access.offset)
        for w, access in zip(formula.writes, written, strict=True)
    ]
    buffers = (
        *(
            Buffer(f"x{i}", m.type.dtype, alignment=m.alignment) if m else Buffer(f"x{i}", results[0].type.dtype)
            for i, m in enumerate(operands)
        ),
        *(Buffer(f"y{i}", m.type.dtype, is_result=True, alignment=m.alignment) for i, m in enumerate(results)),
    )
    extents = extents_of(formula, sizes)
    return Kernel(formula.name, extents, len(order) - len(formula.rows), buffers, tuple(values), tuple(stores))


@frozen(eq=False)
class Access:
    """One load or store of a formula: bytes.

    Attributes:
        strides: Along each axis of the kernel.
        offset: Offset of the first element.
        chosen: Along each axis of the operand whose place is a value.
    """

    strides: tuple[int, ...]
    offset: int
    chosen: tuple[int, ...] = ()


def extents_of(formula: Formula, sizes: DimBinding) -> tuple[int, ...]:
    """The sizes of the axes of a formula's kernel."""
    return tuple([sizes.bind(formula.extents[a]).__index__() for a in axes_of(formula)])


def accesses_of(
    formula: Formula, operands: Sequence[Place | None], results: Sequence[Place], sizes: DimBinding
) -> tuple[dict[int, Access | bool | int | float], list[Access]]:
    """Return the accesses of a formula's kernel to operands and results with the given layouts.

    Returns:
        The loads by the numbers of their terms, a number for an operand that is a literal; and the stores.
    """
    order = axes_of(formula)
    new = {old: i for i, old in enumerate(order)}

    def access(place: Sequence[Affine], strides: Strides, part: int, chosen: tuple[int, ...] = ()) -> Access:
        steps, offset = [0] * len(order), part
        for index, stride in zip(place, strides, strict=True):
            if index.offset != 0:
                offset += sizes.bind(index.offset).__index__() * stride
            for axis, scale in index.terms:
                steps[new[axis]] += scale * stride
        return Access(tuple(steps), offset, chosen)

    loads: dict[int, Access | bool | int | float] = {}
    for i, term in enumerate(formula.terms):
        if isinstance(term, Read):
            operand = operands[term.operand]
            assert operand is not None, "a formula reads only operands that are there"
            number = operand.number
            if number is None:
                chosen = tuple([operand.strides[axis] for axis, _ in term.dynamic])
                loads[i] = access(term.place, operand.strides, term.part * term.dtype.itemsize, chosen)
            else:
                loads[i] = number
    stores = [
        access(w.place, results[w.result].strides, w.part * formula.terms[w.value].dtype.itemsize)
        for w in formula.writes
    ]
    return loads, stores


def simplified(kernel: Kernel) -> Kernel:
    """Return an equivalent kernel with the minimum number of axes."""
    kept_axes = [a for a, n in enumerate(kernel.extents) if n != 1]
    reduces = any(isinstance(v, Reduce) for v in kernel.values)
    if reduces and not any(a >= kernel.grid for a in kept_axes):
        kept_axes.append(len(kernel.extents) - 1)  # a row of one element is still a row
    kernel = _with_axes(kernel, [[a] for a in kept_axes])
    groups: list[list[int]] = []
    for axis in range(len(kernel.extents)):
        if groups and _is_one_axis(kernel, groups[-1][-1], axis):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return _with_axes(kernel, groups)


def _is_one_axis(kernel: Kernel, outer: int, inner: int) -> bool:
    """Return whether all accesses walk `outer` as the continuation of `inner`."""
    if (outer < kernel.grid) != (inner < kernel.grid):
        return False
    size = kernel.extents[inner]
    if any(steps.get(outer, 0) != size * steps.get(inner, 0) for steps in _positions(kernel)):
        return False
    return all(access.strides[outer] == size * access.strides[inner] for access in kernel.accesses)


def _positions(kernel: Kernel) -> list[dict[int, int]]:
    """Return the stride of each position along the axes; positions of which only the sum is used are merged."""
    users: dict[int, list[int]] = {}
    for i, value in enumerate(kernel.values):
        for a in operands_of(value):
            users.setdefault(a, []).append(i)
    stored = {s.value for s in kernel.stores}

    def is_summed(number: int) -> bool:
        reads = users.get(number, [])
        user = kernel.values[reads[0]] if len(reads) == 1 and number not in stored else None
        return isinstance(user, Apply) and isinstance(user.op, add.op)

    by_total: dict[int, dict[int, int]] = {}
    for i, value in enumerate(kernel.values):
        if isinstance(value, Index):
            total = i
            while is_summed(total):
                (total,) = users[total]
            steps = by_total.setdefault(total, {})
            steps[value.axis] = steps.get(value.axis, 0) + value.scale
    return list(by_total.values())


def _with_axes(kernel: Kernel, groups: Sequence[Sequence[int]]) -> Kernel:
    """Return the kernel with each group of neighbouring axes fused; axes in no group have one point, at 0.

    There is no stride along an axis of one point, so loads and stores do not vary along it. If several axes are fused, the
    position along the last of them becomes the fused position, which includes the others' contributions.
    """
    moving = [[axis for axis in group if kernel.extents[axis] != 1] for group in groups]
    place = {axes[-1]: i for i, axes in enumerate(moving) if axes}
    extents = tuple(prod(kernel.extents[axis] for axis in group) for group in groups)

    def strides(old: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(old[group[-1]] if n != 1 else 0 for n, group in zip(extents, groups, strict=True))

    values: list[Scalar] = []
    for value in kernel.values:
        if isinstance(value, Load):
            values.append(evolve(value, strides=strides(value.strides)))
        elif isinstance(value, Index):
            gone = value.axis not in place
            values.append(Const(value.dtype, value.offset) if gone else evolve(value, axis=place[value.axis]))
        else:
            values.append(value)
    stores = tuple(evolve(s, strides=strides(s.strides)) for s in kernel.stores)
    grid = sum(1 for group in groups if group[0] < kernel.grid)
    return Kernel(kernel.name, extents, grid, kernel.buffers, tuple(values), stores)


def with_axis_range(kernel: Kernel, axis: int, first: int, size: int) -> Kernel:
    """Return the kernel for the positions `first` to `first + size` on an axis, counted from 0; stores keep their offsets."""
    values = tuple(
        evolve(v, offset=v.offset + first * v.strides[axis])
        if isinstance(v, Load)
        else evolve(v, offset=v.offset + first * v.scale)
        if isinstance(v, Index) and v.axis == axis
        else v
        for v in kernel.values
    )
    return evolve(kernel, values=values, extents=(*kernel.extents[:axis], size, *kernel.extents[axis + 1 :]))


def with_axis_divided(kernel: Kernel, axis: int, size: int) -> Kernel:
    """Return the kernel with an axis as two, of which the inner one has `size` points, a divisor of the axis's."""

    def strides(old: tuple[int, ...]) -> tuple[int, ...]:
        return (*old[:axis], old[axis] * size, *old[axis:])

    values: list[Scalar] = []
    numbers: list[int] = []  # of the old values among the new ones
    for value in kernel.values:
        new = renumbered(value, numbers)
        if isinstance(new, Load):
            new = evolve(new, strides=strides(new.strides))
        elif isinstance(new, Index) and new.axis == axis:
            values += [evolve(new, scale=new.scale * size), evolve(new, axis=axis + 1, offset=0)]
            new = Apply(new.dtype, add.op(), (len(values) - 2, len(values) - 1))
        elif isinstance(new, Index):
            new = evolve(new, axis=new.axis + (new.axis > axis))
        values.append(new)
        numbers.append(len(values) - 1)
    stores = tuple(evolve(s, value=numbers[s.value], strides=strides(s.strides)) for s in kernel.stores)
    extents = (*kernel.extents[:axis], kernel.extents[axis] // size, size, *kernel.extents[axis + 1 :])
    grid = kernel.grid + (axis < kernel.grid)
    return Kernel(kernel.name, extents, grid, kernel.buffers, tuple(values), stores)


def with_axes_ordered(kernel: Kernel, order: Sequence[int]) -> Kernel:
    """Return the kernel with its axes in another order; those of the grid stay in front."""

    def strides(old: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(old[axis] for axis in order)

    values = tuple(
        evolve(v, strides=strides(v.strides))
        if isinstance(v, Load)
        else evolve(v, axis=order.index(v.axis))
        if isinstance(v, Index)
        else v
        for v in kernel.values
    )
    stores = tuple(evolve(s, strides=strides(s.strides)) for s in kernel.stores)
    return evolve(kernel, extents=strides(kernel.extents), values=values, stores=stores)


def renumbered(value: Scalar, numbers: Sequence[int] | Mapping[int, int]) -> Scalar:
    """Return a value that reads the values `numbers[i]` where it read `i`."""
    if isinstance(value, Load):
        return evolve(value, dynamic=tuple((numbers[v], stride) for v, stride in value.dynamic))
    if isinstance(value, Apply):
        return evolve(value, args=tuple(numbers[a] for a in value.args))
    if isinstance(value, Bound | Reduce):
        return evolve(value, arg=numbers[value.arg])
    return value


def merged(shape: Sequence[int], *strides: Sequence[int]) -> list[tuple[int, ...]]:
    """Axes of tensors that are walked through together, without those of size 1, neighbours made one where all strides allow it.

    >>> merged((2, 1, 3, 4), (96, 7, 16, 4)), merged((2, 3), (12, 4), (16, 4)), merged((1,), (0,))
    ([(2, 96), (12, 4)], [(2, 12, 16), (3, 4, 4)], [])
    """
    axes: list[tuple[int, ...]] = []
    for size, *steps in zip(shape, *strides, strict=False):
        if size == 1:
            continue
        if axes and all(outer == size * step for outer, step in zip(axes[-1][1:], steps, strict=True)):
            size *= axes.pop()[0]
        axes.append((size, *steps))
    return axes
