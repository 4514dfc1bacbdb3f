"""Sizes as integer polynomials of symbols and exact quotients, kept in canonical form."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, ClassVar, NoReturn, TypeAlias

from attrs import field, frozen

from rlx_core.errors import ShapeError
from rlx_core.ir.dims.guards import Relation, holds, require

__all__ = [
    "BATCH",
    "PAST_SEQ",
    "ROWS",
    "SEQ",
    "Atom",
    "Dim",
    "Expr",
    "Symbol",
    "exact_quotient",
    "free_symbols",
    "is_static",
    "product",
    "symbol",
    "symbol_from",
    "symbol_numbered",
]


@frozen(order=True, repr=False)
class Symbol:
    """An unknown size with a unique id; the name is for people."""

    id: int
    name: str = field(eq=False, order=False)

    def __repr__(self) -> str:
        return self.name

    # Numbers are given out as names come up, so they differ from process to process: sizes travel by their text.
    def __reduce__(self) -> tuple[object, ...]:
        return symbol_from, (repr(self),)


MOST_NESTED = 32
"""Quotients inside one another: sizes are printed, compared and bound by recursion, and a size is halved less often than that."""


@frozen(order=False, repr=False)
class Quotient:
    """An exact quotient that no polynomial division resolves; a guard states that it is exact.

    Attributes:
        depth: How many quotients are nested, this one included.
    """

    dividend: Expr
    divisor: Expr
    depth: int = field(init=False, eq=False, order=False)

    @depth.default
    def _depth(self) -> int:
        atoms = [a for size in (self.dividend, self.divisor) for monomial, _ in size.terms for a, _ in monomial]
        return 1 + max((a.depth for a in atoms if isinstance(a, Quotient)), default=0)

    def __attrs_post_init__(self) -> None:
        if self.depth > MOST_NESTED:
            raise ShapeError(
                f"size: {str(self.dividend)[:40]}… divided by {self.divisor} nests more than {MOST_NESTED} quotients",
                hint="give the intermediate size a symbol of its own",
            )

    def __repr__(self) -> str:
        return f"({self.dividend})/({self.divisor})"

    def __reduce__(self) -> tuple[object, ...]:
        return Quotient, (self.dividend, self.divisor)


Atom: TypeAlias = Symbol | Quotient
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]


def _atom_key(atom: Atom) -> tuple[bool, str]:
    # By name, not by id: ids depend on which symbol a process happened to make first.
    return isinstance(atom, Quotient), repr(atom)


def _multiply(a: Monomial, b: Monomial) -> Monomial:
    powers: dict[Atom, int] = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: _atom_key(item[0])))


def _monomial_key(monomial: Monomial) -> tuple[int, tuple[tuple[bool, str], ...]]:
    # Graded lexicographic, as long division needs it: a product of leading terms is the leading term of the product.
    factors = tuple(_atom_key(atom) for atom, power in monomial for _ in range(power))
    return -len(factors), factors


@frozen(order=False, repr=False)
class Expr:
    """An integer polynomial of symbols; `terms` maps each monomial to its coefficient, in canonical order."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def of(size: Dim | Atom) -> Expr:
        """`size` as an expression."""
        if isinstance(size, Expr):
            return size
        if isinstance(size, int):
            return Expr((((), size),)) if size else Expr(())
        return Expr(((((size, 1),), 1),))

    @staticmethod
    def _simplest(terms: Mapping[Monomial, int]) -> Dim:
        kept = sorted(((m, c) for m, c in terms.items() if c), key=lambda t: _monomial_key(t[0]))
        if not kept:
            return 0
        if len(kept) == 1 and kept[0][0] == ():
            return kept[0][1]
        return Expr(tuple(kept))

    def __add__(self, other: Dim) -> Dim:
        size = _size_of(other)
        if size is None:
            return _other_kind(self, "+", other)
        terms = dict(self.terms)
        for monomial, coefficient in Expr.of(size).terms:
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Expr._simplest(terms)

    def __mul__(self, other: Dim) -> Dim:
        size = _size_of(other)
        if size is None:
            return _other_kind(self, "*", other)
        terms: dict[Monomial, int] = {}
        for (m, a), (n, b) in itertools.product(self.terms, Expr.of(size).terms):
            key = _multiply(m, n)
            terms[key] = terms.get(key, 0) + a * b
        return Expr._simplest(terms)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        size = _size_of(other)
        return _other_kind(self, "-", other) if size is None else self + Expr.of(size) * -1

    def __rsub__(self, other: Dim) -> Dim:
        size = _size_of(other)
        return _other_kind(other, "-", self) if size is None else Expr.of(size) + self * -1

    def __floordiv__(self, other: Dim) -> Dim:
        size = _size_of(other)
        return _other_kind(self, "//", other) if size is None else exact_quotient(self, size)

    def __pow__(self, other: int) -> Dim:
        if type(other) is not int or other < 0:
            return _other_kind(self, "**", other)
        return product([self] * other)

    def __truediv__(self, other: object) -> Any:
        return _other_kind(self, "/", other)

    def __rtruediv__(self, other: object) -> Any:
        return _other_kind(other, "/", self)

    def __mod__(self, other: object) -> Any:
        return _other_kind(self, "%", other)

    # An undecided comparison is refused: a branch that was taken for one size would be kept for all of them.
    def __lt__(self, other: Dim) -> bool:
        return _compared(other, ">", self)

    def __le__(self, other: Dim) -> bool:
        return _compared(other, ">=", self)

    def __gt__(self, other: Dim) -> bool:
        return _compared(self, ">", other)

    def __ge__(self, other: Dim) -> bool:
        return _compared(self, ">=", other)

    # NumPy's scalars and arrays must leave the operators to us.
    __array_ufunc__: ClassVar[None] = None

    def __index__(self) -> int:
        raise ShapeError(f"size: {self} is not known yet", hint=_AS_VALUE)

    def __float__(self) -> float:
        raise ShapeError(f"size: {self} is not known yet", hint=_AS_VALUE)

    def __format__(self, form: str) -> str:
        return format(repr(self), form)

    def __repr__(self) -> str:
        return " + ".join(_print_term(m, c) for m, c in self.terms).replace("+ -", "- ")

    def __reduce__(self) -> tuple[object, ...]:
        from rlx_core.ir.dims.text import parse_dim  # reading sizes is about them; they only know that they can be read

        return parse_dim, (repr(self),)


Dim: TypeAlias = int | Expr

_AS_VALUE = (
    "rlx.asarray(size) is the size as a value of the program: compute with it, compare it in rlx.where, slice a traced "
    "value with it, count with rlx.arange(size); Python's `if`, `range` and NumPy need a size that is fixed"
)


def _size_of(number: object) -> Dim | None:
    """A size, from any integer; `None` where it is something else."""
    if isinstance(number, int | Expr):
        return number
    return int(number) if isinstance(number, Integral) else None


def _other_kind(left: object, symbol: str, right: object) -> Any:
    """An operator between a size and what is no size: the affair of a traced value, and refused otherwise.

    Raises:
        ShapeError: No traced value takes part.
    """
    if any(not isinstance(v, Expr) and getattr(v, "__array_ufunc__", ()) is None for v in (left, right)):
        return NotImplemented
    return _undecided(left, symbol, right)


def _compared(left: Any, relation: Relation, right: Any) -> bool:
    one, other = _size_of(left), _size_of(right)
    if one is None or other is None:
        known = _other_kind(left, relation, right)
    else:
        known = holds(relation, one, other)
        # What fails for every size is the opposite relation the other way round.
        known = False if known is None and holds(">=" if relation == ">" else ">", other, one) else known
    return _undecided(left, relation, right) if known is None else known


def _undecided(left: object, symbol: str, right: object) -> NoReturn:
    raise ShapeError(f"size: {left} {symbol} {right} is not known before the sizes are", hint=_AS_VALUE)


def _print_term(monomial: Monomial, coefficient: int) -> str:
    if not monomial:
        return str(coefficient)
    # A quotient beside other factors or under a power needs brackets, or it would read as a longer quotient.
    is_alone = len(monomial) == 1 and monomial[0][1] == 1 and coefficient == 1
    factors = [_print_factor(atom, power, is_alone) for atom, power in monomial]
    sign = "-" if coefficient == -1 else "" if coefficient == 1 else f"{coefficient}*"
    return sign + "*".join(factors)


def _print_factor(atom: Atom, power: int, is_alone: bool) -> str:
    base = f"{atom!r}" if is_alone or isinstance(atom, Symbol) else f"({atom!r})"
    return base if power == 1 else f"{base}^{power}"


_WELL_KNOWN = {name: Symbol(i, name) for i, name in enumerate(("BATCH", "SEQ", "ROWS", "PAST_SEQ"))}
_FIRST_FREE_ID = 16
_by_name: dict[str, Symbol] = dict(_WELL_KNOWN)
_next_id = itertools.count(_FIRST_FREE_ID)


def symbol(name: str) -> Expr:
    """The symbol of that name, made on first use. The same name always means the same unknown size."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ShapeError(f"symbol: {name!r} is not a name", hint="use letters, digits and underscores")
    if name not in _by_name:
        # setdefault: two threads that ask at once must get one symbol.
        _by_name.setdefault(name, Symbol(next(_next_id), name))
    return Expr.of(_by_name[name])


BATCH, SEQ, ROWS, PAST_SEQ = (Expr.of(s) for s in _WELL_KNOWN.values())
"""Well-known sizes: batch, sequence, product of the leading axes, and the length of a decode cache."""


def symbol_from(text: str) -> Symbol:
    """The symbol that is printed so; `?17` is one without a name."""
    named = symbol_numbered(int(text[1:])) if text.startswith("?") else symbol(text)
    atom = named.terms[0][0][0][0]
    assert isinstance(atom, Symbol), "a fresh expression holds its own symbol"
    return atom


def symbol_numbered(number: int) -> Expr:
    """The symbol of that number; one that has no name yet is called after it."""
    return Expr.of(next((s for s in _by_name.values() if s.id == number), Symbol(number, f"?{number}")))


def is_static(size: Dim) -> bool:
    return isinstance(size, int)


def free_symbols(*sizes: Dim) -> frozenset[Symbol]:
    """Every symbol that occurs in `sizes`, inside quotients too."""
    found: set[Symbol] = set()
    for size in sizes:
        for monomial, _ in size.terms if isinstance(size, Expr) else ():
            for atom, _ in monomial:
                found |= {atom} if isinstance(atom, Symbol) else free_symbols(atom.dividend, atom.divisor)
    return frozenset(found)


def product(sizes: Sequence[Dim]) -> Dim:
    """The product of sizes; 1 for none."""
    total: Dim = 1
    for size in sizes:
        total = total * size
    return total


def exact_quotient(dividend: Dim, divisor: Dim) -> Dim:
    """`dividend / divisor` where the division is exact; records a guard when that cannot be decided.

    Raises:
        ShapeError: Both are static and the division leaves a remainder, or the divisor is 0.
    """
    if isinstance(dividend, int) and isinstance(divisor, int):
        if divisor == 0 or dividend % divisor:
            raise ShapeError(f"size: {dividend} is not a multiple of {divisor}")
        return dividend // divisor
    if divisor == 0:
        raise ShapeError(f"size: {dividend} is not a multiple of 0")
    if dividend == 0:
        require(">", divisor, 0)  # 0 divided by an unknown size is 0 unless that size is 0 too
        return 0
    if dividend == divisor:
        return 1
    if divisor == 1:
        return dividend
    direct = _divide_terms(Expr.of(dividend), Expr.of(divisor))
    if direct is not None:
        return direct
    require("divides", divisor, dividend)
    return Expr.of(Quotient(Expr.of(dividend), Expr.of(divisor)))


_MAX_QUOTIENT_TERMS = 256


def _divide_terms(dividend: Expr, divisor: Expr) -> Dim | None:
    """Polynomial long division that succeeds only without remainder."""
    quotient: Dim = 0
    rest: Dim = dividend
    lead, lead_coefficient = divisor.terms[0]
    for _ in range(_MAX_QUOTIENT_TERMS):
        if rest == 0:
            return quotient
        monomial, coefficient = Expr.of(rest).terms[0]
        factor = _divide_monomial(monomial, lead)
        if factor is None or coefficient % lead_coefficient:
            return None
        term = Expr._simplest({factor: coefficient // lead_coefficient})
        quotient = quotient + term
        rest = rest - divisor * term
    return None


def _divide_monomial(a: Monomial, b: Monomial) -> Monomial | None:
    powers = dict(a)
    for atom, power in b:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        powers[atom] = left
    return tuple((atom, power) for atom, power in powers.items() if power)
