"""Relations between sizes: decided where they can be, else recorded as guards that are checked when sizes are bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, TypeAlias

from attrs import field

from rlx_core.errors import Fact, GuardError
from rlx_core.system.context import assigned
from rlx_core.system.records import frozen

if TYPE_CHECKING:  # sizes import guards, guards import sizes lazily
    from rlx_core.ir.dims.algebra import Dim
    from rlx_core.ir.dims.binding import DimBinding

Relation: TypeAlias = Literal["==", ">", ">=", "divides"]

_DECIDE: dict[Relation, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "divides": lambda a, b: a != 0 and b % a == 0,
}


@frozen(repr=False)
class SizeGuard:
    """A relation between sizes that the program relies on; `node` and `source` are the op and the line that require it."""

    relation: Relation
    left: Dim
    right: Dim
    node: str | None = field(default=None, eq=False)
    source: object = field(default=None, eq=False)

    def check(self, binding: DimBinding) -> SizeGuard | None:
        """This guard with sizes bound, or `None` where it holds.

        Raises:
            GuardError: The bound sizes break it.
        """
        left, right = binding.bind(self.left), binding.bind(self.right)
        if isinstance(left, int) and isinstance(right, int):
            if not _DECIDE[self.relation](left, right):
                raise GuardError(
                    f"guard: {self} does not hold ({left} and {right})",
                    *([Fact("node", self.node, self.source)] if self.node else []),
                    Fact("binding", binding),
                )
            return None
        if self.relation == "==" and left == right:
            return None
        return SizeGuard(self.relation, left, right, self.node, self.source)

    def __repr__(self) -> str:
        if self.relation == "divides":
            return f"{self.right} % {self.left} == 0"
        return f"{self.left} {self.relation} {self.right}"


_collector: ContextVar[list[SizeGuard] | None] = ContextVar("guards", default=None)


def collecting_guards() -> assigned[list[SizeGuard]]:
    """Collect the guards that `require` records inside the block."""
    return assigned(_collector, [])


def record(guards: Iterable[SizeGuard]) -> None:
    """Add guards that were collected before to those of the enclosing collection."""
    collected = _collector.get()
    if collected is not None:
        collected.extend(guards)


def holds(relation: Relation, left: Dim, right: Dim) -> bool | None:
    """Return whether the relation holds for all values of the symbols; `None` where that is undecided."""
    if isinstance(left, int) and isinstance(right, int):
        return _DECIDE[relation](left, right)
    if relation in ("==", ">=") and left == right:
        return True
    if relation not in (">", ">="):
        return None
    from rlx_core.ir.dims.bounds import is_never_negative  # here, because few programs have unknown sizes

    return is_never_negative(left - right - (1 if relation == ">" else 0)) or None


def require(relation: Relation, left: Dim, right: Dim) -> bool:
    """Return whether the relation holds; an undecided one is recorded as a guard and assumed.

    A recorded `==` is assumed from then on by the caller, which continues with `left`.
    """
    known = holds(relation, left, right)
    if known is not None:
        return known
    collector = _collector.get()
    guard = SizeGuard(relation, left, right)
    if collector is not None and guard not in collector:
        collector.append(guard)
    return True
