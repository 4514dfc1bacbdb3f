"""The loops over a row of a kernel, the values that each of them computes, and those kept between them.

A value's *level* is the number of reductions under it: the loop of level 1 may use the reductions of the loop of level 0.
Results are stored by the last loop, after which nothing is read, so a result may use the memory of an operand. A value that is
expensive and needed by two loops is kept in a row of scratch memory; a cheap one is recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.codegen.loops import Apply, Kernel, Reduce, operands_of
from rlx_core.ir.op import Op
from rlx_core.ops import activation, arithmetic
from rlx_core.ops.families import Family
from rlx_core.ops.random.philox import RandomWord
from rlx_core.system.records import frozen

_EXPENSIVE: frozenset[type[Op]] = frozenset(
    (
        *(f.op for f in (activation.exp, activation.log, activation.tanh, activation.erf, activation.erfc)),
        *(f.op for f in (activation.exp2, activation.expm1, activation.log1p, activation.log2, activation.log10)),
        *(f.op for f in (arithmetic.divide, arithmetic.pow, activation.sqrt, activation.rsqrt, activation.erfinv)),
        *Family("trigonometry"),
        *Family("gamma"),
        RandomWord,
    )
)
"""Operations that cost more than a store and a load."""


@frozen
class Nest:
    """One loop over the row at each point of the grid.

    Attributes:
        reduces: The reductions that it computes.
        keeps: Values that later loops read from scratch memory.
        stores: Numbers of the kernel's stores that it does.
    """

    reduces: tuple[int, ...]
    keeps: tuple[int, ...]
    stores: tuple[int, ...]


@frozen
class LoopSchedule:
    """The loops in order, then the stores of row-invariant values."""

    nests: tuple[Nest, ...]
    finish: tuple[int, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(v for nest in self.nests for v in nest.keeps)


def levels(kernel: Kernel) -> tuple[int, ...]:
    """For each value, the number of reductions that must be complete before it can be computed."""
    result: list[int] = []
    for value in kernel.values:
        below = max((result[a] for a in operands_of(value)), default=0)
        result.append(below + isinstance(value, Reduce))
    return tuple(result)


def schedule(kernel: Kernel) -> LoopSchedule:
    """The loops of a kernel; without rows there is one, of one pass."""
    level, varies = levels(kernel), kernel.varies
    reduces = [i for i, v in enumerate(kernel.values) if isinstance(v, Reduce)]
    along = [kernel.is_along_rows(s) for s in kernel.stores]
    inside = tuple(i for i, is_along in enumerate(along) if is_along)
    finish = tuple(i for i, is_along in enumerate(along) if not is_along)
    depths = sorted({level[kernel.values[r].arg] for r in reduces})  # type: ignore[union-attr]
    groups = [tuple(r for r in reduces if level[r] == depth + 1) for depth in depths]
    plan: list[tuple[tuple[int, ...], tuple[int, ...]]] = [(group, ()) for group in groups]
    if inside:
        plan.append(((), inside))
    retained: set[int] = set()
    nests: list[Nest] = []
    for i, (group, stores) in enumerate(plan):
        now = _needed(kernel, _roots(kernel, group, stores), retained)
        subsequent = [_needed(kernel, _roots(kernel, g, s), retained) for g, s in plan[i + 1 :]]
        again = {v for v in now if any(v in other for other in subsequent)}
        expensive = {v for v in again if varies[v] and is_expensive(kernel.values[v])}
        # Only values outside of other kept values need to be kept.
        covered = {a for v in expensive for a in _needed(kernel, operands_of(kernel.values[v]), set())}
        keeps = tuple(
            sorted(v for v in expensive if v not in covered or _is_read_directly(kernel, v, subsequent, expensive))
        )
        retained.update(keeps)
        nests.append(Nest(group, keeps, stores))
    return LoopSchedule(tuple(nests), finish)


def _roots(kernel: Kernel, reduces: Sequence[int], stores: Sequence[int]) -> tuple[int, ...]:
    return (*(a for r in reduces for a in operands_of(kernel.values[r])), *(kernel.stores[s].value for s in stores))


def _needed(kernel: Kernel, roots: Sequence[int], retained: set[int]) -> set[int]:
    """Return all values that a loop computes for its roots; finished reductions and kept values are only read."""
    needed: set[int] = set()
    waiting = [r for r in roots if r not in retained]
    while waiting:
        value = waiting.pop()
        if value in needed or isinstance(kernel.values[value], Reduce):
            continue
        needed.add(value)
        waiting += [a for a in operands_of(kernel.values[value]) if a not in retained]
    return needed


def is_expensive(term: object) -> bool:
    """Return whether a value costs more to compute than to keep."""
    return isinstance(term, Apply) and type(term.op) in _EXPENSIVE


def _is_read_directly(kernel: Kernel, value: int, subsequent: Sequence[set[int]], expensive: set[int]) -> bool:
    """Return whether a later loop reads a value other than through another one that is kept."""
    users = [u for u, term in enumerate(kernel.values) if value in operands_of(term)]
    return any(u in other and u not in expensive for other in subsequent for u in users)
