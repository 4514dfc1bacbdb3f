"""Kernels with sizes as run-time arguments: expressions replace the numbers of other kernels, and a binding evaluates them.

The axes, the fused axes, contiguity and broadcasting are fixed; the extents and strides of an axis are not, if they depend on a
size that is not known yet. Extents are sizes of the program; strides that depend on such sizes are separate symbols, because
the layouts of values are known only once sizes are bound.

The fields of such a kernel contain expressions in the place of integers. Only a printer that supports this accepts one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, pairwise, starmap
from typing import TypeVar, cast

from rlx_core.codegen.formula import Formula
from rlx_core.codegen.layout import Access, accesses_of, axes_of, extents_of, whole_kernel
from rlx_core.codegen.loops import Index, Kernel, Load, Store
from rlx_core.codegen.places import Layout, Place
from rlx_core.codegen.unknown import unknown
from rlx_core.ir.dims import Dim, DimBinding, Expr, SizeSymbol, free_symbols, product
from rlx_core.ir.graph import Node
from rlx_core.ir.types import TensorType
from rlx_core.system.locks import lazy
from rlx_core.system.records import evolve, frozen

LoadOrStore = TypeVar("LoadOrStore", Load, Store)

Walked = Load | Store | Access
"""Objects with a stride along each axis."""

Groups = tuple[tuple[int, ...], ...]
"""The axes of a formula that are fused to one axis of a kernel."""


@frozen(eq=False)
class SizedKernel:
    """A kernel for all sizes.

    Attributes:
        formula: The formula, for all sizes.
        kernel: With expressions.
        groups: For each axis of the kernel, the axes of the formula that it fuses.
    """

    formula: Formula
    kernel: Kernel
    groups: Groups

    def sizes(self, layout: Layout, binding: DimBinding) -> DimBinding | None:
        """Return the values of its expressions, for operands and results with this layout; `None` if it does not match."""
        extents = extents_of(self.formula, binding)
        loads, stores = accesses_of(self.formula, layout.operands, layout.results, binding)
        accesses = [*(a for a in loads.values() if isinstance(a, Access)), *stores]
        moving = [_moving(extents, group) for group in self.groups]
        if not all(_is_one_walk(extents, accesses, axes) for axes in moving):
            return None
        values = dict(binding.sizes)
        for expected, plain in zip(self._expected, accesses, strict=True):
            strides = plain.strides
            numbers = (*[strides[axes[0]] if axes else None for axes in moving], plain.offset, *plain.chosen)
            for expected_size, number in zip(expected, numbers, strict=True):
                if isinstance(expected_size, SizeSymbol):
                    values[expected_size] = 0 if number is None else number
                elif number is not None and expected_size != number:
                    return None
        return DimBinding(values)

    @lazy
    def _expected(self) -> list[tuple[int | SizeSymbol, ...]]:
        """Return the strides, the offset and the factors of data-dependent indices of each access: numbers, or symbols."""

        def named(number: Dim) -> int | SizeSymbol:
            if not isinstance(number, Expr):
                return number
            (name,) = free_symbols(number)
            return name

        return [tuple(map(named, (*a.strides, a.offset, *_chosen(a)))) for a in self.kernel.accesses]


def sized_kernel(formula: Formula, layout: Layout, binding: DimBinding) -> SizedKernel:
    """The kernel for all sizes that lie as those of `binding` do in `layout`."""
    sizes = [formula.extents[axis] for axis in axes_of(formula)]
    base_kernel = whole_kernel(formula, layout.operands, layout.results, binding)
    groups = _groups(base_kernel, sizes)
    extents = tuple(product([sizes[axis] for axis in group]) for group in groups)
    numbers = count()

    def open_number() -> int:
        return unknown(f"{next(numbers)}")

    def opened(access: LoadOrStore) -> LoadOrStore:
        group_strides = _strides(base_kernel, access, groups)
        within = [s for s, n in zip(group_strides, extents, strict=True) if s and isinstance(n, Expr)]

        def stride(known: int | None, group: Sequence[int]) -> int:
            if known is None:  # one element: it may say that it is repeated or contiguous, and nothing else
                lies = access.strides[group[-1]]
                return lies if lies in (0, _itemsize(base_kernel, access)) else open_number()
            return known if known <= min(within, default=known) else open_number()

        strides = tuple(starmap(stride, zip(group_strides, groups, strict=True)))
        return evolve(access, strides=strides, offset=open_number() if access.offset else 0)

    values = tuple(
        # The stride of a data-dependent index is looked up: once per row, mostly.
        evolve(opened(v), dynamic=tuple((value, open_number()) for value, _ in v.dynamic))
        if isinstance(v, Load)
        else evolve(v, axis=next(i for i, group in enumerate(groups) if v.axis in group))
        if isinstance(v, Index)
        else v
        for v in base_kernel.values
    )
    stores = tuple(opened(s) for s in base_kernel.stores)
    grid = sum(1 for group in groups if group[0] < base_kernel.grid)
    kernel = Kernel(base_kernel.name, cast("tuple[int, ...]", extents), grid, base_kernel.buffers, values, stores)
    return SizedKernel(formula, kernel, groups)


def _itemsize(kernel: Kernel, access: Load | Store) -> int:
    """Bytes of an element."""
    return kernel.buffers[access.buffer].dtype.itemsize


def _chosen(access: Load | Store) -> tuple[int, ...]:
    return tuple(stride for _, stride in access.dynamic) if isinstance(access, Load) else ()


def _groups(kernel: Kernel, sizes: Sequence[Dim]) -> Groups:
    """Return groups of neighbouring axes that can be fused in all accesses, without those of size 1.

    If an axis has only one element, its stride is arbitrary, so it remains separate.
    """
    indexed = {v.axis for v in kernel.values if isinstance(v, Index)}
    is_plain = [axis not in indexed and kernel.extents[axis] > 1 for axis in range(len(sizes))]
    groups: list[tuple[int, ...]] = []
    for axis, size in enumerate(sizes):
        if size == 1 and axis not in indexed:
            continue
        before = groups[-1] if groups else ()
        is_one = (
            bool(before)
            and is_plain[axis]
            and is_plain[before[-1]]
            and (axis < kernel.grid) == (before[0] < kernel.grid)
        )
        if is_one and _is_one_axis(kernel, (*before, axis)):
            groups[-1] = (*before, axis)
        else:
            groups.append((axis,))
    if kernel.row_axes and not any(group[0] >= kernel.grid for group in groups):
        groups.append((len(sizes) - 1,))  # a row of one element is still a row
    return tuple(groups)


def _moving(extents: Sequence[int], group: Sequence[int]) -> list[int]:
    """The axes of a group that have more than one element, the innermost first: strides along others are never followed."""
    return [axis for axis in reversed(group) if extents[axis] != 1]


def _is_one_axis(kernel: Kernel, group: Sequence[int]) -> bool:
    """Return whether all accesses walk the axes of a group as if they were one."""
    return _is_one_walk(kernel.extents, kernel.accesses, _moving(kernel.extents, group))


def _is_one_walk(extents: Sequence[int], accesses: Sequence[Walked], moving: Sequence[int]) -> bool:
    """The same for axes that have more than one element, the innermost first."""
    if len(moving) < 2:
        return True
    return all(
        access.strides[outer] == extents[inner] * access.strides[inner]
        for inner, outer in pairwise(moving)
        for access in accesses
    )


def _strides(kernel: Kernel, access: Load | Store, groups: Groups) -> list[int | None]:
    """The stride along each group; `None` where it has one element."""
    moving = (_moving(kernel.extents, group) for group in groups)
    return [access.strides[axes[0]] if axes else None for axes in moving]


# ------------------------------------------------------------------------------------------- layouts


def sized_layout(node: Node, layout: Layout) -> Layout:
    """Return the layout for all sizes: its types are those of a node with unknown sizes, and strides that depend on one are
    symbols.
    """
    numbers = count()

    def opened(type: TensorType, place: Place) -> Place:
        is_moving = [known != 1 for known in place.type.shape]
        within = [
            s for s, n, m in zip(place.strides, type.shape, is_moving, strict=True) if m and s and isinstance(n, Expr)
        ]
        strides = tuple(
            unknown(f"{next(numbers)}") if m and s > min(within, default=s) else s
            for s, m in zip(place.strides, is_moving, strict=True)
        )
        return evolve(place, type=type, strides=strides)

    operands = tuple(
        None if p is None or t is None else opened(t, p)
        for t, p in zip(node.operand_types, layout.operands, strict=True)
    )
    return Layout(operands, tuple(opened(t, p) for t, p in zip(node.types, layout.results, strict=True)))


def layout_sizes(sized: Layout, layout: Layout) -> dict[SizeSymbol, int] | None:
    """The strides that a sized layout leaves open; `None` where operands or results lie in another way."""
    sizes: dict[SizeSymbol, int] = {}
    pairs = zip((*sized.operands, *sized.results), (*layout.operands, *layout.results), strict=True)
    for expected, actual in pairs:
        if expected is None or actual is None:
            continue
        strides: tuple[Dim, ...] = expected.strides
        for stride, known, size in zip(strides, actual.strides, actual.type.shape, strict=True):
            if isinstance(stride, Expr):
                (name,) = free_symbols(stride)
                sizes[name] = 0 if size == 1 else known
            elif size != 1 and stride != known:
                return None
    return sizes
