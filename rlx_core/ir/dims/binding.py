"""Bindings of symbols to sizes: the dims of a program once its inputs are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field

from rlx_core.errors import BindingError, ShapeError
from rlx_core.ir.dims.algebra import Dim, Expr, exact_quotient, floor_quotient, product, smaller
from rlx_core.ir.dims.atoms import Atom, SizeSymbol, symbol_from
from rlx_core.system.records import frozen


class RecordedSize:
    """The base of sizes that record the computations with them (`pipeline.recording`): integers to `isinstance`."""

    __slots__ = ()

    def called(self, function: Callable[..., Any], numbers: Sequence[Any]) -> Any:
        """Record the call of a function of numbers, of which this is one; return its result, a number or a tuple of some."""
        raise NotImplementedError


def call_recorded(function: Callable[..., Any], *numbers: Any) -> Any:
    """Return `function(*numbers)`. If sizes are recorded, it is one operation, whatever branches the function takes.

    Args:
        function: Depends on its arguments only; its result is a number or a tuple of numbers.
    """
    recorded = next((number for number in numbers if isinstance(number, RecordedSize)), None)
    return function(*numbers) if recorded is None else recorded.called(function, numbers)


@frozen
class DimBinding:
    """Sizes for symbols. Binding a dim replaces the known symbols and leaves the others.

    >>> DimBinding.of(BATCH=8, s=3).bind(BATCH * symbol("s") + 1)
    25
    """

    # Compared and hashed by content, so that specialisations can be cached by binding.
    sizes: Mapping[SizeSymbol, int] = field(factory=dict, eq=lambda sizes: tuple(sorted(sizes.items())))

    @staticmethod
    def of(**sizes: int) -> DimBinding:
        """A binding from names."""
        return binding_of(sizes)

    @property
    def is_recorded(self) -> bool:
        """Whether computations with the sizes are recorded: their results are then kept nowhere else."""
        return any(isinstance(size, RecordedSize) for size in self.sizes.values())

    def bind(self, size: Dim) -> Dim:
        return substitute(size, self.sizes)

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{s}={n}" for s, n in sorted(self.sizes.items())) + "}"

    def __reduce__(self) -> tuple[object, ...]:
        return binding_of, ({repr(s): n for s, n in self.sizes.items()},)


def binding_of(sizes: Mapping[str, int]) -> DimBinding:
    """A binding from a table of names.

    Raises:
        ShapeError, BindingError: One is no name, or no size.
    """
    return DimBinding({symbol_from(name): _checked_size(name, size) for name, size in sizes.items()})


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


def substitute(size: Dim, sizes: Mapping[SizeSymbol, Dim]) -> Dim:
    """`size` with every symbol of `sizes` replaced.

    Raises:
        BindingError: A quotient that was assumed exact is not, or its divisor is 0.
    """
    if isinstance(size, int):
        return size
    terms = size.terms
    if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1:
        ((atom, power),) = terms[0][0]
        if power == 1 and isinstance(atom, SizeSymbol):  # as most sizes are
            return sizes.get(atom, size)
    total: Dim = 0
    for monomial, coefficient in size.terms:
        term: Dim = coefficient
        for atom, power in monomial:
            term = term * product([_substitute_atom(atom, sizes)] * power)
        total = total + term
    return total


def _substitute_atom(atom: Atom, sizes: Mapping[SizeSymbol, Dim]) -> Dim:
    if isinstance(atom, SizeSymbol):
        return sizes.get(atom, Expr.of(atom))
    left, right = substitute(atom.left, sizes), substitute(atom.right, sizes)
    if atom.kind == "min":
        return smaller(left, right)
    try:
        return exact_quotient(left, right) if atom.kind == "/" else floor_quotient(left, right)
    except ShapeError:
        relation = "a multiple of" if atom.kind == "/" else "divisible by"
        raise BindingError(f"binding: {atom.left} = {left} is not {relation} {right}") from None
