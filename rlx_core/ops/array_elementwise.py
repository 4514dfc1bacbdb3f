"""The element-wise functions of the Python Array API that accept more dtypes than the op of the same name.

The floor of an integer is the integer itself, and a real number is its own real part and conjugate: no op is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rlx_core.errors import ConfigError, DtypeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import OpFunction
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.graph import Value
from rlx_core.ops import arithmetic, complex, conversion, piecewise, selection
from rlx_core.ops.arguments import flag, whole
from rlx_core.ops.array_shapes import copied
from rlx_core.ops.creation import zeros_like
from rlx_core.ops.linalg import operand

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

MOST_PLACES: Final = 300
"""Limit of `decimals` in `round`: larger powers of ten are not finite."""


def dtype_of(x: Any) -> DType:
    """Return the dtype of a value, an array or a number."""
    return x.dtype if isinstance(x, Value) else dtype(operand(x).dtype)


def _whole(x: Any, rounding: OpFunction[Any]) -> Any:
    return copied(x) if dtype_of(x).is_integer else rounding(x)


@checked_call
def floor(x: ArrayLike) -> Array:
    """⌊x⌋; integers are unchanged."""
    return _whole(x, piecewise.floor)


@checked_call
def ceil(x: ArrayLike) -> Array:
    """⌈x⌉; integers are unchanged."""
    return _whole(x, piecewise.ceil)


@checked_call
def trunc(x: ArrayLike) -> Array:
    """x without its fraction; integers are unchanged."""
    return _whole(x, piecewise.trunc)


@checked_call
def round(x: ArrayLike, decimals: int = 0, *, straight_through: bool = False) -> Array:
    """x to the nearest number of `decimals` decimal places, ties to the even one; of a complex number both parts.

    As in NumPy, x is multiplied by 10^decimals, rounded and divided again, so if that product overflows, the value is lost.
    Negative `decimals` round to tens, hundreds and so on. Integers are unchanged; negative `decimals` are for floats only. With
    `straight_through` the derivative is that of the identity; otherwise it is 0.

    Raises:
        ConfigError: `decimals` is not an integer from -300 to 300.
        DtypeError: `x` is an integer and `decimals` below 0.
    """
    places, passes = whole("round: decimals", decimals), flag("round: straight_through", straight_through)
    if abs(places) > MOST_PLACES:
        raise ConfigError(f"round: decimals must be from -{MOST_PLACES} to {MOST_PLACES}, not {places}")
    if dtype_of(x).is_complex:
        parts = conversion.real(x), complex.imag(x)
        return complex.make_complex(*(_rounded(part, places, passes) for part in parts))
    if not dtype_of(x).is_integer:
        return _rounded(x, places, passes)
    if places < 0:
        raise DtypeError(f"round: {places} decimals are for floats, not {dtype_of(x)}")
    return copied(x)


def _rounded(x: Any, places: int, ste: bool) -> Any:
    if places == 0:
        return piecewise.round(x, ste=ste)
    scale = 10.0 ** abs(places)
    forward, back = (arithmetic.multiply, arithmetic.divide) if places > 0 else (arithmetic.divide, arithmetic.multiply)
    return back(piecewise.round(forward(x, scale), ste=ste), scale)


@checked_call
def positive(x: ArrayLike) -> Array:
    """x itself, of any numeric dtype."""
    if not dtype_of(x).is_numeric:
        raise DtypeError(f"positive: x must be a number, not {dtype_of(x)}")
    return copied(x)


@checked_call
def real(x: ArrayLike) -> Array:
    """The real part; of a real x that is x."""
    return conversion.real(x) if dtype_of(x).is_complex else positive(x)


@checked_call
def imag(x: ArrayLike) -> Array:
    """The imaginary part; of a real x that is 0."""
    return complex.imag(x) if dtype_of(x).is_complex else zeros_like(positive(x))


@checked_call
def conj(x: ArrayLike) -> Array:
    """The complex conjugate; of a real x that is x."""
    return conversion.conjugate(x) if dtype_of(x).is_complex else positive(x)


conjugate = conj


@checked_call
def clip(x: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """x clamped between `min` and `max`, either of which may be absent; bounds take the dtype of x, and NaN is preserved."""
    return selection.clip(x, min, max)
