"""Reading sizes off data: determining the symbols of a program from its arrays, and checking that they all agree.

With array shapes every dim is matched with its size, plain symbols first, then expressions are checked. A flat buffer has
only a number of elements, so it can determine one unknown symbol at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import field

from rlx_core.errors import BindingError, Fact, MissingInputError, UnknownNameError, nearest
from rlx_core.ir.dims import Dim, DimBinding, Expr, SizeSymbol, free_symbols
from rlx_core.ir.types import TensorType
from rlx_core.system.records import define

_EXPLICIT = "pass an explicit binding, such as batch_seq(8, 128)"


@define
class _Solution:
    """Sizes determined so far, and the input that each came from."""

    sizes: dict[SizeSymbol, int] = field(factory=dict)
    origin: dict[SizeSymbol, str] = field(factory=dict)

    def learn(self, symbol: SizeSymbol, size: int, where: str) -> None:
        known = self.sizes.get(symbol)
        if known is not None and known != size:
            raise BindingError(
                f"binding: {symbol} is {known} in {self.origin[symbol]} and {size} in {where}",
                Fact(self.origin[symbol], known),
                Fact(where, size),
            )
        self.sizes[symbol] = size
        self.origin.setdefault(symbol, where)

    def binding(self) -> DimBinding:
        return DimBinding(dict(self.sizes))

    def unknown(self, dims: Iterable[Dim]) -> list[SizeSymbol]:
        return sorted(free_symbols(*dims) - self.sizes.keys(), key=lambda s: s.name)


def infer_binding(types: Mapping[str, TensorType], arrays: Mapping[str, Any], *, flat: bool = False) -> DimBinding:
    """The sizes that the shapes of `arrays` give to the symbols of `types`.

    Args:
        types: Input name → declared type.
        arrays: Input name → an array, or anything with a `shape`.
        flat: The arrays are flat buffers, of which only the number of elements means something.

    Raises:
        BindingError: A rank or a static size differs, two dims disagree, or an expression does not come out.
        MissingInputError, UnknownNameError: The names differ.
    """
    if flat:
        return infer_binding_from_counts(types, {name: math.prod(a.shape) for name, a in arrays.items()})
    _check_names(types, arrays)
    pairs = [(name, *pair) for name, t in types.items() for pair in _matched(name, t, arrays[name].shape)]
    solution = _Solution()
    for name, axis, dim, size in pairs:
        plain = None if isinstance(dim, int) else plain_symbol(dim)
        if plain is not None:
            solution.learn(plain, size, f"{name} axis {axis}")
    binding = solution.binding()
    for name, axis, dim, size in pairs:
        if dim != size:
            _check_dim(name, axis, dim, size, binding)
    return binding


def _check_names(types: Mapping[str, TensorType], values: Mapping[str, Any]) -> None:
    for name in values:
        if name not in types:
            raise UnknownNameError(f"binding: there is no input {name!r}", hint=nearest(name, types))
    missing = [name for name in types if name not in values]
    if missing:
        raise MissingInputError(f"binding: no array for {', '.join(missing)}")


def _matched(name: str, type: TensorType, shape: Sequence[int]) -> Iterator[tuple[int, Dim, int]]:
    if len(shape) != type.rank:
        raise BindingError(
            f"binding: {name} must have {type.rank} axes, not {len(shape)}",
            Fact("declared", type),
            Fact("given", list(shape)),
        )
    return ((axis, dim, int(size)) for axis, (dim, size) in enumerate(zip(type.shape, shape, strict=True)))


def plain_symbol(dim: Dim) -> SizeSymbol | None:
    if not isinstance(dim, Expr) or len(dim.terms) != 1:
        return None
    ((monomial, coefficient),) = dim.terms
    is_plain = coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1
    atom = monomial[0][0] if is_plain else None
    return atom if isinstance(atom, SizeSymbol) else None


def _check_dim(name: str, axis: int, dim: Dim, size: int, binding: DimBinding) -> None:
    bound = binding.bind(dim)
    if isinstance(bound, Expr):
        listed = ", ".join(sorted(s.name for s in free_symbols(bound)))
        raise BindingError(f"binding: {name} axis {axis} is {dim}, which does not determine {listed}", hint=_EXPLICIT)
    if bound != size:
        expected = f"{dim} = {bound}" if isinstance(dim, Expr) else f"{bound}"
        raise BindingError(f"binding: {name} axis {axis} must be {expected}, not {size}", Fact("binding", binding))


def infer_binding_from_counts(types: Mapping[str, TensorType], counts: Mapping[str, int]) -> DimBinding:
    """The sizes that the element counts of flat buffers give to the symbols of `types`.

    Inputs with one unknown are solved first, so that their solutions help with the others.

    Raises:
        BindingError: More than one unknown is left in an input, a count is not divisible or the known sizes multiply to
            0, two inputs disagree.
        MissingInputError, UnknownNameError: The names differ.
    """
    _check_names(types, counts)
    solution = _Solution()
    open_names = list(types)
    while open_names:
        ready = [n for n in open_names if len(solution.unknown(types[n].shape)) <= 1]
        if not ready:
            raise _too_many(open_names[0], types, solution)
        for name in ready:
            _solve_count(name, types[name], counts[name], solution)
        open_names = [n for n in open_names if n not in ready]
    return solution.binding()


def _too_many(name: str, types: Mapping[str, TensorType], solution: _Solution) -> BindingError:
    unknown = ", ".join(s.name for s in solution.unknown(types[name].shape))
    return BindingError(
        f"binding: {name} is {types[name]}, and its number of elements cannot determine more than one of {unknown}",
        hint=_EXPLICIT,
    )


def _solve_count(name: str, type: TensorType, count: int, solution: _Solution) -> None:
    binding = solution.binding()
    shape = type.bind(binding).shape
    unknown = solution.unknown(type.shape)
    if unknown:
        _learn_count(name, type, shape, count, solution)
        shape = type.bind(solution.binding()).shape
    total = 1
    for size in shape:
        total *= size.__index__()
    if total != count:
        raise BindingError(
            f"binding: {name} is {type} with {total} elements, not {count}",
            *(Fact(str(s), n, solution.origin[s]) for s, n in solution.sizes.items()),
        )


def _learn_count(name: str, type: TensorType, shape: Sequence[Dim], count: int, solution: _Solution) -> None:
    known = 1
    for size in shape:
        known *= size if isinstance(size, int) else 1
    symbolic = [d for d in shape if not isinstance(d, int)]
    plain = plain_symbol(symbolic[0]) if len(symbolic) == 1 else None
    if plain is None:
        listed = " and ".join(map(str, symbolic))
        raise BindingError(f"binding: {name} is {type}, and {count} elements do not determine {listed}", hint=_EXPLICIT)
    if known == 0:
        raise BindingError(f"binding: {name} is {type}, whose known sizes multiply to 0: {plain} could be anything")
    if count % known:
        raise BindingError(f"binding: {name} has {count} elements, not a multiple of {known} ({type})")
    solution.learn(plain, count // known, name)
