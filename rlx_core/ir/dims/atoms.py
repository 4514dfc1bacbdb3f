"""The atoms of sizes: symbols, and quotients and minima of sizes."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from attrs import field

from rlx_core.errors import ShapeError
from rlx_core.system.records import frozen

if TYPE_CHECKING:  # expressions consist of atoms, and compound atoms of expressions
    from rlx_core.ir.dims.algebra import Expr


@frozen(order=True, repr=False)
class SizeSymbol:
    """An unknown size with a unique id; the name is for people."""

    id: int
    name: str = field(eq=False, order=False)

    def __repr__(self) -> str:
        return self.name

    # Numbers are given out as names come up, so they differ from process to process: sizes travel by their text.
    def __reduce__(self) -> tuple[object, ...]:
        return symbol_from, (repr(self),)


MOST_NESTED = 32
"""Maximum nesting of quotients and minima: sizes are printed, compared and bound by recursion, and no model nests more."""

Kind: TypeAlias = Literal["/", "//", "min"]


@frozen(order=False, repr=False)
class Compound:
    """A function of two sizes that is not a polynomial: an exact quotient, one that is rounded down, or the smaller of the two.

    A guard states that an exact quotient is exact. The larger of two sizes is their sum without the smaller.

    Attributes:
        depth: How many are nested, this one included.
    """

    kind: Kind
    left: Expr
    right: Expr
    depth: int = field(init=False, eq=False, order=False)

    @depth.default
    def _depth(self) -> int:
        atoms = [a for size in (self.left, self.right) for monomial, _ in size.terms for a, _ in monomial]
        return 1 + max((a.depth for a in atoms if isinstance(a, Compound)), default=0)

    def __attrs_post_init__(self) -> None:
        if self.depth > MOST_NESTED:
            raise ShapeError(
                f"size: {str(self.left)[:40]}… {self.kind} {self.right} nests more than {MOST_NESTED} quotients and minima",
                hint="give the intermediate size a symbol of its own",
            )

    def __repr__(self) -> str:
        if self.kind == "min":
            return f"min({self.left}, {self.right})"
        return f"({self.left}){self.kind}({self.right})"

    def __reduce__(self) -> tuple[object, ...]:
        return Compound, (self.kind, self.left, self.right)


Atom: TypeAlias = SizeSymbol | Compound


def atom_key(atom: Atom) -> tuple[bool, str]:
    """Return the sort key of an atom."""
    # By name, not by id: ids depend on which symbol a process happened to make first.
    return isinstance(atom, Compound), repr(atom)


WELL_KNOWN = tuple(SizeSymbol(i, name) for i, name in enumerate(("BATCH", "SEQ", "ROWS", "PAST_SEQ")))
_FIRST_FREE_ID = 16
_by_name: dict[str, SizeSymbol] = {s.name: s for s in WELL_KNOWN}
_next_id = itertools.count(_FIRST_FREE_ID)


def symbol_named(name: str) -> SizeSymbol:
    """The symbol of that name, made on first use.

    Raises:
        ShapeError: It is no name.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ShapeError(f"symbol: {name!r} is not a name", hint="use letters, digits and underscores")
    if name not in _by_name:
        # setdefault: two threads that call this at once must get one symbol.
        _by_name.setdefault(name, SizeSymbol(next(_next_id), name))
    return _by_name[name]


def numbered(number: int) -> SizeSymbol:
    """Return the symbol of that number; one without a name yet gets this name."""
    return next((s for s in _by_name.values() if s.id == number), SizeSymbol(number, f"?{number}"))


def symbol_from(text: str) -> SizeSymbol:
    """Return the symbol for a printed name; `?17` is one without a name."""
    return numbered(int(text[1:])) if text.startswith("?") else symbol_named(text)
