"""The type of a tensor before its elements exist: its dtype and its dims.

The notation `f32[4, SEQ, 384]` is the one the printer prints, the errors show and `spec` reads back; `f32[]` is a scalar.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import accumulate
from operator import index, mul
from typing import Final

from attrs import field

from rlx_core.errors import AxisError, DtypeError, Fact, FormatError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import Dim, DimBinding, Expr, RecordedSize, is_static, parse_dims, product, require
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.system.locks import lazy
from rlx_core.system.records import frozen

Shape = tuple[Dim, ...]


def as_dim(size: object) -> Dim:
    """A size as an attribute or a type holds it: an integer or an expression of symbols.

    Raises:
        ShapeError: It is neither; nothing is rounded to one.
    """
    if isinstance(size, Expr | RecordedSize):
        return size  # type: ignore[return-value]  # a recorded size is used as an integer
    try:
        return index(size)  # type: ignore[arg-type]
    except TypeError:
        raise ShapeError(f"type: a size is an integer or a symbol, not {size!r}") from None


def known_size(size: Dim) -> int:
    """A size as an integer.

    Raises:
        ShapeError: It is still symbolic.
    """
    return size if isinstance(size, int) else size.__index__()


_TOO_LARGE = 2**63

MAX_RANK: Final = 64
"""Axes that an array may have: NumPy's limit (`NPY_MAXDIMS`)."""


def _checked_shape(dims: Iterable[Dim]) -> Shape:
    shape = tuple([size if type(size) is int else as_dim(size) for size in dims])
    if len(shape) > MAX_RANK:
        raise ShapeError(f"type: an array has at most {MAX_RANK} axes, not {len(shape)}")
    for size in shape:
        if isinstance(size, int) and not 0 <= size < _TOO_LARGE:
            requirement = "at least 0" if size < 0 else "less than 2^63"
            raise ShapeError(f"type: a size is {requirement}, not {size}", Fact("dims", list(shape)))
    return shape


@frozen(eq=True, cache_hash=True, repr=False, slots=False)
class TensorType:
    """The type of a value: `f32[4, SEQ, 384]`. Rank 0 is a scalar, and not the same as `[1]`."""

    dtype: DType
    shape: Shape = field(default=(), converter=_checked_shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @lazy
    def is_static(self) -> bool:
        """Whether every dim is a number."""
        return all(map(is_static, self.shape))

    @lazy
    def size(self) -> Dim:
        """The number of elements; an expression when dims are symbolic."""
        return product(self.shape)

    @lazy
    def nbytes(self) -> Dim:
        """The number of bytes of a dense buffer of this type.

        Raises:
            ShapeError: More bytes than 2**63 - 1.
        """
        total = self.size * self.dtype.itemsize
        if isinstance(total, int) and total >= 2**63:
            raise ShapeError(f"type: {self} needs {total} bytes, more than an address can hold")
        return total

    @property
    def static_nbytes(self) -> int:
        """The number of bytes as an integer.

        Raises:
            ShapeError: A dim is still symbolic, or there are more bytes than 2**63 - 1.
        """
        return known_size(self.nbytes)

    @lazy
    def static_shape(self) -> tuple[int, ...]:
        """The dims as integers.

        Raises:
            ShapeError: A dim is still symbolic.
        """
        return tuple([size if isinstance(size, int) else index(size) for size in self.shape])

    @lazy
    def dense_strides(self) -> tuple[int, ...]:
        """The bytes from an element to the next along each axis, in a row-major buffer.

        Raises:
            ShapeError: A dim is still symbolic.
        """
        return tuple(accumulate(reversed(self.static_shape), mul, initial=self.dtype.itemsize))[:-1][::-1]

    def with_shape(self, shape: Iterable[Dim]) -> TensorType:
        return self if shape is self.shape else TensorType(self.dtype, tuple(shape))

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)

    def bind(self, binding: DimBinding) -> TensorType:
        """This type with the binding's symbols replaced."""
        return self if self.is_static else self.with_shape(binding.bind(d) for d in self.shape)

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def __reduce__(self) -> tuple[object, ...]:
        return spec, (repr(self),)


_AS_TEXT = 'write it as "f32[4, SEQ, 384]", a scalar as "f32[]"'
_SPEC = re.compile(r"\s*([A-Za-z]\w*)\s*\[(.*)\]\s*", re.DOTALL)


@checked_call
def spec(text: str | TensorType) -> TensorType:
    """Read a type as it is printed. Names in the dims are symbols.

    Raises:
        FormatError, ShapeError, DtypeError: It is no text, or not the text of a type.

    >>> spec("f32[batch, 64]"), spec("i64[]"), spec("bf16[2*n + 1]").rank
    (f32[batch, 64], i64[], 1)
    """
    if isinstance(text, TensorType):
        return text
    if not isinstance(text, str):
        raise FormatError(f"spec: {text!r} is {type(text).__name__}, not the text of a type", hint=_AS_TEXT)
    match = _SPEC.fullmatch(text)
    if match is None:
        raise ShapeError(f"type: {text!r} is not a type", hint=_AS_TEXT)
    name, dims = match.groups()
    sizes = parse_dims(dims) if dims.strip() else []
    return TensorType(dtype(name), sizes)


def listed(types: Iterable[object]) -> str:
    """Return types as text for messages: `f32[4], i64[]`."""
    return ", ".join(map(str, types))


# ------------------------------------------------------------------- checks for inference rules


def same_dim(a: Dim, b: Dim) -> bool:
    """Return whether two sizes are equal; an undecided pair is recorded as a guard and assumed equal."""
    return require("==", a, b)


def expect_shape(name: str, actual: TensorType, expected: Iterable[Dim]) -> None:
    """Require that operand `name` has exactly the dims `expected`.

    Raises:
        ShapeError: It has others.
    """
    dims = tuple(expected)
    if actual.rank != len(dims) or not all(same_dim(a, b) for a, b in zip(actual.shape, dims, strict=True)):
        raise ShapeError(f"{name} must be [{', '.join(map(str, dims))}], not {actual}")


def expect_rank(name: str, actual: TensorType, at_least: int, at_most: int | None = None) -> None:
    """Require that operand `name` has between `at_least` and `at_most` axes.

    Raises:
        ShapeError: It has fewer or more.
    """
    if actual.rank < at_least or (at_most is not None and actual.rank > at_most):
        expected = (
            f"{at_least}"
            if at_most == at_least
            else f"{at_least} or more"
            if at_most is None
            else f"{at_least} to {at_most}"
        )
        raise ShapeError(f"{name} must have {expected} axes, not {actual.rank} ({actual})")


def expect_dtype(name: str, actual: TensorType, accepted: Iterable[DType], kind: str = "") -> None:
    """Require that operand `name` has one of the dtypes `accepted`; `kind` is their common word ("float").

    Raises:
        DtypeError: It has another.
    """
    allowed = tuple(accepted)
    if actual.dtype not in allowed:
        raise DtypeError(f"{name} must be {kind or 'one of ' + ' '.join(d.name for d in allowed)}, not {actual.dtype}")


def expect_dtype_of(name: str, actual: TensorType, other: str, like: TensorType) -> None:
    """Require that operand `name` has the dtype of the operand `other`.

    Raises:
        DtypeError: It has another.
    """
    if actual.dtype is not like.dtype:
        raise DtypeError(f"{name} must be {like.dtype} like {other}, not {actual.dtype}")


def normalize_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front.

    Raises:
        AxisError: It is no integer, or lies outside `-rank .. rank-1`.
    """
    try:
        axis = index(axis)
    except TypeError:
        raise AxisError(f"an axis is an integer, not {axis!r}") from None
    if not -rank <= axis < rank:
        raise AxisError(f"axis {axis} is outside a tensor with {rank} axes ({-rank}..{rank - 1})")
    return axis % rank


def normalize_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """`axes` counted from the front, in ascending order.

    Raises:
        AxisError: One lies outside the rank, or is named twice.
    """
    normalized = sorted(normalize_axis(a, rank) for a in axes)
    if len(set(normalized)) != len(normalized):
        raise AxisError(f"axes {normalized} name one axis twice")
    return tuple(normalized)


def _broadcast_dim(a: Dim, b: Dim) -> Dim:
    if a == 1:
        return b
    if b == 1 or a == b:
        return a
    if isinstance(a, int) and isinstance(b, int):
        raise ShapeError(f"{a} and {b} do not broadcast")
    # An unknown size never broadcasts silently: it is assumed equal, and checked when it is bound.
    same_dim(a, b)
    return a if isinstance(a, int) or not isinstance(b, int) else b


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The common shape of right-aligned `shapes`.

    Static: an axis of 1 is broadcast, equal sizes stay. A symbol next to another size is assumed equal to it, under a guard.

    Raises:
        ShapeError: Two static sizes differ and neither is 1.
    """
    result: Shape = ()
    for shape in shapes:
        longer, shorter = (result, shape) if len(result) >= len(shape) else (shape, result)
        padded = (1,) * (len(longer) - len(shorter)) + tuple(shorter)
        try:
            result = tuple(map(_broadcast_dim, longer, padded))
        except ShapeError as error:
            listed = " and ".join(f"[{', '.join(map(str, s))}]" for s in shapes)
            raise ShapeError(f"shapes {listed} do not broadcast ({error.message})") from None
    return result
