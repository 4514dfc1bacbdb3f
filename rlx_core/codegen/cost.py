"""A rough cost model of loop nests: it compares two kernels with the kernel that does the work of both.

The unit is one cheap operation on one element, about 0.05 ns of a core with wide vectors. The model takes into account where a
value is computed (at every point, or once per row), expensive functions, and the fixed cost of a step. It does not model
caches: a load costs the same from any level, so merging kernels that share one appears profitable, but never by much. It
compares kernels and is no time: the backend estimates how long a step takes.
"""

from __future__ import annotations

from math import prod

from rlx_core.codegen.formula import Formula, Place, Read
from rlx_core.codegen.loops import Apply, Bound, Const, Index, Reduce
from rlx_core.codegen.schedule import is_expensive

STEP = 10_000
"""The fixed cost of a step: its barrier and its call, about half a microsecond."""

_LOAD, _STORE, _EXPENSIVE, _GATHER = 4, 6, 12, 12
"""Cheap operations that take as long as a load or a store of an element, a function of it, and a load from a computed place."""

_STRIDED = 4
"""Relative cost of a load from a different cache line for every element of a row."""


def units(formula: Formula) -> int:
    """Return how many rows there are, which is what threads can share; of an element-wise kernel, its elements."""
    return prod(n for a, n in enumerate(_sizes(formula)) if a not in formula.rows)


def points(formula: Formula) -> int:
    """Return how many elements the loops visit."""
    return prod(_sizes(formula))


def cost_of(formula: Formula) -> int:
    """The work of a kernel with known sizes, its step included."""
    sizes = _sizes(formula)
    # Without reductions the last axis is walked like a row: what does not vary along it is computed once for all of it.
    rows = frozenset(formula.rows or (len(sizes) - 1,))
    along = _varying(formula, rows)
    everywhere, once_a_row = prod(sizes), prod(n for a, n in enumerate(sizes) if a not in rows)
    last = frozenset((_last(sizes),))
    strides = _STRIDED if _walks_columns(formula) else 1
    # Column-wise rows are processed in parallel along the last axis, and row-invariant values are computed once for all of
    # them.
    columns = max(sizes[_last(sizes)], 1) if _walks_columns(formula) else 1
    work = 0
    for term, varies, varies_beside in zip(formula.terms, along, _varying(formula, last), strict=True):
        weight = _weight(term)
        if isinstance(term, Read):
            weight = _LOAD * strides if varies and _is_read_once(term, sizes) else _LOAD
        once = once_a_row if varies_beside else once_a_row // columns
        work += weight * (everywhere if varies or isinstance(term, Reduce) else once)
    for write in formula.writes:
        work += _STORE * (everywhere if along[write.value] or _moves(write.place, rows) else once_a_row)
    return STEP + work * _halves(formula)


def _is_read_once(read: Read, sizes: tuple[int, ...]) -> bool:
    """Return whether every point reads a different element: an element that is read again is in a cache by then."""
    moving = {axis for index in read.place for axis, _ in index.terms}
    return all(axis in moving for axis, n in enumerate(sizes) if n > 1)


def _walks_columns(formula: Formula) -> bool:
    """Return whether a row lies across memory, so that every element of it is in another cache line."""
    sizes = _sizes(formula)
    return bool(formula.rows) and _last(sizes) not in formula.rows


def _last(sizes: tuple[int, ...]) -> int:
    """The last axis along which there is more than one element."""
    return max((a for a, n in enumerate(sizes) if n > 1), default=0)


def _halves(formula: Formula) -> int:
    """2 where 8-byte elements among narrower ones halve the vectors of all of them."""
    widths = {t.dtype.itemsize for t in formula.terms if isinstance(t, Read)}
    return 2 if 8 in widths and min(widths) < 8 else 1


def _weight(term: object) -> int:
    if isinstance(term, Const | Index):
        return 0
    if isinstance(term, Bound):
        return _GATHER
    if isinstance(term, Apply):
        return _EXPENSIVE if is_expensive(term) else 1
    return 1


def _varying(formula: Formula, axes: frozenset[int]) -> list[bool]:
    """For each term, whether it is another one at other places along some axes."""
    varies: list[bool] = []
    for term in formula.terms:
        if isinstance(term, Read):
            varies.append(_moves(term.place, axes) or any(varies[v] for _, v in term.dynamic))
        elif isinstance(term, Index):
            varies.append(term.axis in axes)
        elif isinstance(term, Apply):
            varies.append(any(varies[a] for a in term.args))
        elif isinstance(term, Reduce):
            varies.append(varies[term.arg] and not axes.issubset(formula.rows))
        else:
            varies.append(isinstance(term, Bound) and varies[term.arg])
    return varies


def _moves(place: Place, rows: frozenset[int]) -> bool:
    return any(axis in rows for index in place for axis, _ in index.terms)


def _sizes(formula: Formula) -> tuple[int, ...]:
    """The extents; a size that is not known yet counts as one that is worth a loop."""
    return tuple(n if isinstance(n, int) else 64 for n in formula.extents)
