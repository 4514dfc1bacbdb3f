"""Sizes: static, symbolic, or integer expressions of symbols.

A `Dim` is an `int` or an `Expr`. An expression is kept as a canonical polynomial over symbols and exact quotients, so
that equal sizes are equal objects to `==` and `hash`: `n*(s+1)` and `s*n + n` are one dim. A relation that cannot be
decided while sizes are unknown becomes a `Guard`, which is checked when they are bound.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TypeAlias

from attrs import field, frozen

from rlx_core.errors import BindingError, Fact, GuardError, ShapeError

__all__ = [
    "BATCH",
    "PAST_SEQ",
    "ROWS",
    "SEQ",
    "Dim",
    "DimBinding",
    "Expr",
    "Guard",
    "Relation",
    "Symbol",
    "batch_past_seq",
    "batch_seq",
    "collecting_guards",
    "exact_quotient",
    "free_symbols",
    "is_static",
    "parse_dim",
    "product",
    "require",
    "substitute",
    "symbol",
]


@frozen(order=True, repr=False)
class Symbol:
    """An unknown size with a unique id; the name is for people."""

    id: int
    name: str = field(eq=False, order=False)

    def __repr__(self) -> str:
        return self.name


@frozen(order=True, repr=False)
class Quotient:
    """An exact quotient that no polynomial division resolves; a guard states that it is exact."""

    dividend: Expr
    divisor: Expr

    def __repr__(self) -> str:
        return f"({self.dividend})/({self.divisor})"


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
        terms = dict(self.terms)
        for monomial, coefficient in Expr.of(other).terms:
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Expr._simplest(terms)

    def __mul__(self, other: Dim) -> Dim:
        terms: dict[Monomial, int] = {}
        for (m, a), (n, b) in itertools.product(self.terms, Expr.of(other).terms):
            key = _multiply(m, n)
            terms[key] = terms.get(key, 0) + a * b
        return Expr._simplest(terms)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + Expr.of(other) * -1

    def __rsub__(self, other: Dim) -> Dim:
        return Expr.of(other) + self * -1

    def __floordiv__(self, other: Dim) -> Dim:
        return exact_quotient(self, other)

    def __lt__(self, other: Expr) -> bool:
        return repr(self) < repr(other)  # only for canonical order inside a monomial

    def __index__(self) -> int:
        raise ShapeError(
            f"size: {self} is not known yet",
            hint="bind the symbol, or use the dim itself where a size is expected",
        )

    def __repr__(self) -> str:
        return " + ".join(_print_term(m, c) for m, c in self.terms).replace("+ -", "- ")


Dim: TypeAlias = int | Expr


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


# --------------------------------------------------------------------------------------------- symbols

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


# ----------------------------------------------------------------------------------- binding and guards


@frozen
class DimBinding:
    """Sizes for symbols. Binding a dim replaces the known symbols and leaves the others.

    >>> DimBinding.of(BATCH=8, s=3).bind(BATCH * symbol("s") + 1)
    25
    """

    # Compared and hashed by content, so that specialisations can be cached by binding.
    sizes: Mapping[Symbol, int] = field(factory=dict, eq=lambda sizes: tuple(sorted(sizes.items())))

    @staticmethod
    def of(**sizes: int) -> DimBinding:
        """A binding from names."""
        return DimBinding({_symbol_of(name): _checked_size(name, size) for name, size in sizes.items()})

    def bind(self, size: Dim) -> Dim:
        return substitute(size, self.sizes)

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{s}={n}" for s, n in sorted(self.sizes.items())) + "}"


def _symbol_of(name: str) -> Symbol:
    atom = symbol(name).terms[0][0][0][0]
    assert isinstance(atom, Symbol), "a fresh expression holds its own symbol"
    return atom


def _checked_size(name: str, size: int) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise BindingError(f"binding: {name} must be an integer of at least 0, not {size!r}")
    return size


def batch_seq(batch: int, seq: int) -> DimBinding:
    """The binding of an encoder call: BATCH, SEQ and ROWS = batch * seq."""
    return DimBinding.of(BATCH=batch, SEQ=seq, ROWS=batch * seq)


def batch_past_seq(batch: int, past: int) -> DimBinding:
    """The binding of a decode step: BATCH and PAST_SEQ."""
    return DimBinding.of(BATCH=batch, PAST_SEQ=past)


def substitute(size: Dim, sizes: Mapping[Symbol, Dim]) -> Dim:
    """`size` with every symbol of `sizes` replaced.

    Raises:
        BindingError: A quotient that was assumed exact is not.
    """
    if isinstance(size, int):
        return size
    total: Dim = 0
    for monomial, coefficient in size.terms:
        term: Dim = coefficient
        for atom, power in monomial:
            term = term * product([_substitute_atom(atom, sizes)] * power)
        total = total + term
    return total


def _substitute_atom(atom: Atom, sizes: Mapping[Symbol, Dim]) -> Dim:
    if isinstance(atom, Symbol):
        return sizes.get(atom, Expr.of(atom))
    dividend, divisor = substitute(atom.dividend, sizes), substitute(atom.divisor, sizes)
    try:
        return exact_quotient(dividend, divisor)
    except ShapeError:
        raise BindingError(f"binding: {atom.dividend} = {dividend} is not a multiple of {divisor}") from None


Relation: TypeAlias = Literal["==", ">", ">=", "divides"]

_DECIDE: dict[Relation, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "divides": lambda a, b: a != 0 and b % a == 0,
}


@frozen(repr=False)
class Guard:
    """A relation between sizes that the program relies on; `node` and `source` say who asked for it."""

    relation: Relation
    left: Dim
    right: Dim
    node: str | None = field(default=None, eq=False)
    source: object = field(default=None, eq=False)

    def check(self, binding: DimBinding) -> Guard | None:
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
        return Guard(self.relation, left, right, self.node, self.source)

    def __repr__(self) -> str:
        if self.relation == "divides":
            return f"{self.right} % {self.left} == 0"
        return f"{self.left} {self.relation} {self.right}"


_collector: ContextVar[list[Guard] | None] = ContextVar("guards", default=None)


@contextmanager
def collecting_guards() -> Iterator[list[Guard]]:
    """Collect the guards that `require` records inside the block."""
    guards: list[Guard] = []
    token = _collector.set(guards)
    try:
        yield guards
    finally:
        _collector.reset(token)


def require(relation: Relation, left: Dim, right: Dim) -> bool:
    """Whether the relation holds; an undecided one is recorded as a guard and assumed.

    A recorded `==` is assumed from then on by the caller, who goes on with `left`.
    """
    if isinstance(left, int) and isinstance(right, int):
        return _DECIDE[relation](left, right)
    if relation in ("==", ">=") and left == right:
        return True
    if relation in (">", ">=") and isinstance(left, Expr):
        # Sizes are never negative, so `n + 3 > 2` and `2*n >= 0` are decided without knowing n.
        difference = Expr.of(left - right if isinstance(left, Expr) else left)
        constant = dict(difference.terms).get((), 0)
        others_grow = all(c >= 0 for m, c in difference.terms if m != ())
        if others_grow and (constant > 0 or (relation == ">=" and constant >= 0)):
            return True
    collector = _collector.get()
    guard = Guard(relation, left, right)
    if collector is not None and guard not in collector:
        collector.append(guard)
    return True


_MAX_DEPTH, _MAX_POWER = 32, 32
_DIM_TOKEN = re.compile(r"\s*(?:(\d+)|\?(\d+)|([A-Za-z_]\w*)|(.))")


def parse_dim(text: str) -> Dim:
    """Read a dim as it is printed: `12`, `SEQ`, `?17`, `2*n + 1`, `(n*s)/(4)`.

    Raises:
        ShapeError: The text is not a size.
    """
    tokens = [m.groups() for m in _DIM_TOKEN.finditer(text.strip())]
    position = depth = 0

    def peek() -> str | None:
        return tokens[position][3] if position < len(tokens) else None

    def fail() -> ShapeError:
        return ShapeError(f"size: {text!r} is not a size", hint="write 12, SEQ, 2*n + 1")

    def atom() -> Dim:
        nonlocal depth
        # Texts come from files too: what no printer writes is refused before it costs memory or stack.
        if position >= len(tokens) or depth >= _MAX_DEPTH:
            raise fail()
        depth += 1
        read = bare_atom()
        depth -= 1
        return read

    def bare_atom() -> Dim:
        nonlocal position
        number, ident, name, mark = tokens[position]
        position += 1
        if len(number or ident or "") > 19:
            raise fail()
        if number is not None:
            return int(number)
        if ident is not None:
            return Expr.of(next((s for s in _by_name.values() if s.id == int(ident)), Symbol(int(ident), f"?{ident}")))
        if name is not None:
            return symbol(name)
        if mark == "(":
            inner = total()
            if peek() != ")":
                raise fail()
            position += 1
            return inner
        if mark == "-":
            return -1 * factor()
        raise fail()

    def factor() -> Dim:
        nonlocal position
        base = atom()
        if peek() == "^":
            position += 1
            exponent = atom()
            if not isinstance(exponent, int) or exponent > _MAX_POWER:
                raise fail()
            return product([base] * exponent)
        return base

    def term() -> Dim:
        nonlocal position
        value = factor()
        while (mark := peek()) in ("*", "/"):
            position += 1
            value = value * factor() if mark == "*" else exact_quotient(value, factor())
        return value

    def total() -> Dim:
        nonlocal position
        value = term()
        while (mark := peek()) in ("+", "-"):
            position += 1
            value = value + term() if mark == "+" else value - term()
        return value

    result = total()
    if position != len(tokens):
        raise fail()
    return result
