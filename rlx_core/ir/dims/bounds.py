"""Bounds of sizes before their symbols are known: sizes are never negative, and quotients and minima have bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx_core.ir.dims.atoms import Atom, Compound, SizeSymbol
from rlx_core.system.records import define

if TYPE_CHECKING:  # sizes import this when they are compared
    from rlx_core.ir.dims.algebra import Dim, Expr

MOST_BOUNDS = 64
"""Maximum number of differences examined before a relation is undecided; each quotient or minimum may double them."""


def is_never_negative(size: Dim) -> bool:
    """Return whether a size, or a difference of sizes, is provably at least 0 for all values of its symbols.

    `n + 3`, `2*n`, `n - min(n, 4)` and `n - 2*((n)//(2))` are; for `n - 1` it cannot be proved.
    """
    return _Search().holds(size)


@define
class _Search:
    """A search with a limited number of steps; a search that exceeds it proves nothing."""

    left: int = MOST_BOUNDS

    def holds(self, size: Dim) -> bool:
        """Return whether a size is known to be at least 0."""
        if isinstance(size, int):
            return size >= 0
        self.left -= 1
        if self.left < 0:
            return False
        if all(c >= 0 and all(self._grows(a) for a, _ in monomial) for monomial, c in size.terms):
            return True
        compounds = {a: None for monomial, _ in size.terms for a, _ in monomial if isinstance(a, Compound)}
        return any(self._holds_around(size, atom) for atom in compounds)

    def _grows(self, atom: Atom) -> bool:
        return isinstance(atom, SizeSymbol) or (self.holds(atom.left) and self.holds(atom.right))

    def _holds_around(self, size: Expr, atom: Compound) -> bool:
        """Return whether the size is at least 0 with `atom` replaced by its bounds."""
        parts = size.around(atom)
        if parts is None:
            return False
        factor, addend = parts
        if self.holds(factor):
            below = _below(atom)
            return bool(below) and all(self.holds(factor * low + addend * by) for low, by in below)
        if self.holds(-factor):
            return any(self.holds(factor * high + addend * by) for high, by in _above(atom))
        return False


def _below(atom: Compound) -> list[tuple[Dim, int]]:
    """Fractions, numerator and denominator, one of which is at most `atom`; none where none is known."""
    rounded_off = _divisor(atom) - 1 if atom.kind == "//" else 0
    return [(low - rounded_off, by) for low, by in _above(atom)]


def _above(atom: Compound) -> list[tuple[Dim, int]]:
    """Fractions, numerator and denominator, each of which is at least `atom`."""
    if atom.kind == "min":
        return [(atom.left, 1), (atom.right, 1)]
    divisor = _divisor(atom)
    return [(atom.left, divisor)] if divisor > 0 else []


def _divisor(atom: Compound) -> int:
    """Return the divisor of a quotient, or 0 where that is unknown."""
    return dict(atom.right.terms).get((), 0) if len(atom.right.terms) == 1 else 0
