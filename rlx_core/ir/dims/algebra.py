"""Sizes as integer polynomials of symbols, quotients and minima, kept in canonical form."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from numbers import Integral
from typing import Any, ClassVar, NoReturn, TypeAlias

from rlx_core.errors import ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims.atoms import WELL_KNOWN, Atom, Compound, Kind, atom_key, numbered, symbol_named
from rlx_core.ir.dims.atoms import SizeSymbol as SizeSymbol
from rlx_core.ir.dims.guards import Relation, holds, require
from rlx_core.system.records import frozen

Monomial: TypeAlias = tuple[tuple[Atom, int], ...]


def _multiply(a: Monomial, b: Monomial) -> Monomial:
    powers: dict[Atom, int] = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: atom_key(item[0])))


def _monomial_key(monomial: Monomial) -> tuple[int, tuple[tuple[bool, str], ...]]:
    # Graded lexicographic, as long division needs it: a product of leading terms is the leading term of the product.
    factors = tuple(atom_key(atom) for atom, power in monomial for _ in range(power))
    return -len(factors), factors


def _refused(symbol: str, is_reflected: bool = False) -> Callable[[Expr, object], Any]:
    """Return an operator that is not defined on sizes alone."""

    def operator(self: Expr, other: object) -> Any:
        return _other_kind(other, symbol, self) if is_reflected else _other_kind(self, symbol, other)

    return operator


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
        nonzero = sorted(((m, c) for m, c in terms.items() if c), key=lambda t: _monomial_key(t[0]))
        if not nonzero:
            return 0
        if len(nonzero) == 1 and nonzero[0][0] == ():
            return nonzero[0][1]
        return Expr(tuple(nonzero))

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
        return _other_kind(self, "//", other) if size is None else floor_quotient(self, size)

    def __rfloordiv__(self, other: Dim) -> Dim:
        size = _size_of(other)
        return _other_kind(other, "//", self) if size is None else floor_quotient(size, self)

    def __mod__(self, other: Dim) -> Dim:
        size = _size_of(other)
        return _other_kind(self, "%", other) if size is None else self - floor_quotient(self, size) * size

    def __rmod__(self, other: Dim) -> Dim:
        size = _size_of(other)
        return _other_kind(other, "%", self) if size is None else size - floor_quotient(size, self) * self

    def __divmod__(self, other: Dim) -> tuple[Dim, Dim]:
        return self // other, self % other

    def __rdivmod__(self, other: Dim) -> tuple[Dim, Dim]:
        return other // self, other % self

    def __pow__(self, other: int) -> Dim:
        if type(other) is not int or other < 0:
            return _other_kind(self, "**", other)
        return product([self] * other)

    __truediv__, __rtruediv__ = _refused("/"), _refused("/", True)
    __lshift__, __rlshift__ = _refused("<<"), _refused("<<", True)
    __rshift__, __rrshift__ = _refused(">>"), _refused(">>", True)
    __and__, __rand__ = _refused("&"), _refused("&", True)
    __or__, __ror__ = _refused("|"), _refused("|", True)
    __xor__, __rxor__ = _refused("^"), _refused("^", True)
    __rpow__ = _refused("**", True)

    def __invert__(self) -> Dim:
        return -1 - self

    def __abs__(self) -> Dim:
        return self - 2 * smaller(self, 0)

    def __trunc__(self) -> Expr:
        return self

    __pos__ = __floor__ = __ceil__ = __trunc__

    def __round__(self, digits: int | None = None) -> Expr:
        return self

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
        raise ShapeError(f"size: {self} is not known yet", hint=_TO_COUNT)

    def __float__(self) -> float:
        raise ShapeError(f"size: {self} is not known yet", hint=_TO_COUNT)

    def __format__(self, form: str) -> str:
        return format(repr(self), form)

    def __repr__(self) -> str:
        return " + ".join(_print_term(m, c) for m, c in self.terms).replace("+ -", "- ") or "0"

    def around(self, atom: Atom) -> tuple[Dim, Dim] | None:
        """This size as a multiple of `atom` and a rest: `(factor, rest)`; `None` where `atom` is not linear in it."""
        inside: dict[Monomial, int] = {}
        outside: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            power = dict(monomial).get(atom, 0)
            if power > 1:
                return None
            others = tuple((a, p) for a, p in monomial if a != atom)
            (inside if power else outside)[others] = coefficient
        return Expr._simplest(inside), Expr._simplest(outside)


Dim: TypeAlias = int | Expr

_AS_VALUE = "rlx.asarray(size) is the size as a value of the program"
_TO_COMPUTE = (
    f"put the traced value first, as in `x / size`, or compute with a value: {_AS_VALUE}, "
    "and rlx.asarray(size, dtype=x.dtype) has the dtype of x"
)
_TO_COMPARE = (
    f"Python's `if` and `min` would decide once, for every size; {_AS_VALUE}: choose with "
    "rlx.where(rlx.asarray(size) > 3, a, b), or fix the size in the spec"
)
_TO_COUNT = (
    "`range`, `float`, lists and NumPy need a size that is fixed in the spec; in a program rlx.arange(size) counts, "
    f"rlx.asarray(table)[size : size + 1] reads a table, and {_AS_VALUE}"
)


def _size_of(number: object) -> Dim | None:
    """Return a size from any integer; `None` for other objects."""
    if isinstance(number, int | Expr):
        return number
    return int(number) if isinstance(number, Integral) else None


def _other_kind(left: object, symbol: str, right: object) -> Any:
    """Apply an operator to a size and an object that is not one: a traced value handles it, anything else is refused.

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
        # A relation fails for every size if the opposite relation holds with exchanged operands.
        known = False if known is None and holds(">=" if relation == ">" else ">", other, one) else known
    return _undecided(left, relation, right) if known is None else known


def _undecided(left: object, symbol: str, right: object) -> NoReturn:
    hint = _TO_COMPARE if symbol in (">", ">=") else _TO_COMPUTE
    raise ShapeError(f"size: {left} {symbol} {right} is not known before the sizes are", hint=hint)


def _print_term(monomial: Monomial, coefficient: int) -> str:
    if not monomial:
        return str(coefficient)
    # A quotient that is multiplied or raised to a power needs brackets, or it would read as a longer quotient.
    is_alone = len(monomial) == 1 and monomial[0][1] == 1 and coefficient == 1
    factors = [_print_factor(atom, power, is_alone) for atom, power in monomial]
    sign = "-" if coefficient == -1 else "" if coefficient == 1 else f"{coefficient}*"
    return sign + "*".join(factors)


def _print_factor(atom: Atom, power: int, is_alone: bool) -> str:
    base = f"{atom!r}" if is_alone or isinstance(atom, SizeSymbol) or atom.kind == "min" else f"({atom!r})"
    return base if power == 1 else f"{base}^{power}"


@checked_call
def symbol(name: str) -> Expr:
    """The symbol of that name, made on first use. The same name always means the same unknown size.

    Raises:
        ShapeError: It is no name.
    """
    return Expr.of(symbol_named(name))


def symbol_numbered(number: int) -> Expr:
    """The symbol of that number; one that has no name yet is called after it."""
    return Expr.of(numbered(number))


BATCH, SEQ, ROWS, PAST_SEQ = (Expr.of(s) for s in WELL_KNOWN)
"""Well-known sizes: batch, sequence, product of the leading axes, and the length of a decode cache."""


def is_static(size: Dim) -> bool:
    return isinstance(size, int)


def free_symbols(*sizes: Dim) -> frozenset[SizeSymbol]:
    """Every symbol that occurs in `sizes`, inside quotients and minima too."""
    symbols: set[SizeSymbol] = set()
    for size in sizes:
        for monomial, _ in size.terms if isinstance(size, Expr) else ():
            for atom, _ in monomial:
                symbols |= {atom} if isinstance(atom, SizeSymbol) else free_symbols(atom.left, atom.right)
    return frozenset(symbols)


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
    return Expr.of(Compound("/", Expr.of(dividend), Expr.of(divisor)))


def floor_quotient(dividend: Dim, divisor: Dim) -> Dim:
    """`dividend // divisor`, rounded down as Python rounds; a divisor that is unknown is above 0, under a guard.

    Raises:
        ShapeError: The divisor is 0.
    """
    if divisor == 0:
        raise ShapeError(f"size: {dividend} is divided by 0")
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend // divisor
    if isinstance(divisor, int):
        if divisor < 0:
            dividend, divisor = -dividend, -divisor
        # Whole multiples are taken out, so that equal quotients are equal objects: (2*n + 3)//2 is n + 1 + 1//2.
        parts = {m: divmod(c, divisor) for m, c in Expr.of(dividend).terms}
        quotient = Expr._simplest({m: times for m, (times, _) in parts.items()})
        remainder = Expr._simplest({m: left for m, (_, left) in parts.items()})
        if isinstance(remainder, int):
            return quotient  # the rest is below the divisor
        inner, more = _alone(remainder, "//")
        if inner is not None and isinstance(by := _as_dim(inner.right), int):
            # Rounding twice is rounding once: (n//2 + 1)//2 is (n + 2)//4.
            return quotient + floor_quotient(inner.left + more * by, by * divisor)
        return quotient + Expr.of(Compound("//", remainder, Expr.of(divisor)))
    require(">", divisor, 0)
    if dividend == 0:
        return 0
    direct = _divide_terms(Expr.of(dividend), divisor)
    return Expr.of(Compound("//", Expr.of(dividend), divisor)) if direct is None else direct


def smaller(a: Dim, b: Dim) -> Dim:
    """The smaller of two sizes: one of them where that can be decided, else an expression of both."""
    if holds(">=", a, b):
        return b
    if holds(">=", b, a):
        return a
    a, b = sorted((a, b), key=repr)  # so that the smaller of b and a is the same object
    for one, other in ((a, b), (b, a)):
        simpler = _smaller_of_difference(one, other)
        if simpler is not None:
            return simpler
    least = _least([*_minima(a), *_minima(b)])
    if len(least) == 1:
        return least[0]
    result = Expr.of(least[0])
    for each in least[1:]:
        result = Expr.of(Compound("min", result, Expr.of(each)))
    return result


def _minima(size: Dim) -> list[Dim]:
    """The sizes of which one is the minimum, flat."""
    result: list[Dim] = []
    waiting: list[Dim] = [size]
    while waiting:
        each = waiting.pop()
        inner, remainder = _alone(each, "min") if isinstance(each, Expr) else (None, 0)
        if inner is None or remainder:
            result.append(each)
        else:
            waiting += [_as_dim(inner.left), _as_dim(inner.right)]
    return result


def _least(sizes: Sequence[Dim]) -> list[Dim]:
    """Return the possible minima in order of their names: `x[:8][:4]` has `min(4, n)` elements, not `min(4, 8, n)`."""
    result: list[Dim] = []
    for size in sorted(sizes, key=repr):
        if not any(holds(">=", size, other) for other in result):
            result = [*(other for other in result if not holds(">=", other, size)), size]
    return result


def _smaller_of_difference(a: Dim, b: Dim) -> Dim | None:
    """`min(a, r - min(c, d))` where two of `a + c`, `a + d`, `r` can be compared, else `None`: `x[1:][1:]` has `n - min(2, n)`.

    It is `min(a + min(c, d), r) - min(c, d)`, and `a + min(c, d)` the smaller of `a + c` and `a + d`.
    """
    for monomial, coefficient in b.terms if isinstance(b, Expr) else ():
        atom = monomial[0][0] if len(monomial) == 1 and monomial[0][1] == 1 else None
        if coefficient == -1 and isinstance(atom, Compound) and atom.kind == "min":
            total = b + Expr.of(atom)
            least = _least([a + _as_dim(atom.left), a + _as_dim(atom.right), total])
            if len(least) < 3:
                return reduce(smaller, least) - Expr.of(atom)
    return None


def _as_dim(size: Expr) -> Dim:
    """An expression as a size: a number where it is one."""
    return Expr._simplest(dict(size.terms))


def _alone(size: Expr, kind: Kind) -> tuple[Compound | None, int]:
    """The one quotient or minimum that a size consists of, and the number that is added to it."""
    terms = dict(size.terms)
    more = terms.pop((), 0)
    if len(terms) == 1:
        ((monomial, coefficient),) = terms.items()
        atom, power = monomial[0]
        if coefficient == 1 and len(monomial) == 1 and power == 1 and isinstance(atom, Compound) and atom.kind == kind:
            return atom, more
    return None, more


_MAX_QUOTIENT_TERMS = 256


def _divide_terms(dividend: Expr, divisor: Expr) -> Dim | None:
    """Polynomial long division that succeeds only without remainder."""
    quotient: Dim = 0
    remainder: Dim = dividend
    lead, lead_coefficient = divisor.terms[0]
    for _ in range(_MAX_QUOTIENT_TERMS):
        if remainder == 0:
            return quotient
        monomial, coefficient = Expr.of(remainder).terms[0]
        factor = _divide_monomial(monomial, lead)
        if factor is None or coefficient % lead_coefficient:
            return None
        term = Expr._simplest({factor: coefficient // lead_coefficient})
        quotient = quotient + term
        remainder = remainder - divisor * term
    return None


def _divide_monomial(a: Monomial, b: Monomial) -> Monomial | None:
    powers = dict(a)
    for atom, power in b:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        powers[atom] = left
    return tuple((atom, power) for atom, power in powers.items() if power)
