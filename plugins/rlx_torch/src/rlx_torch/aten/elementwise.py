"""Arithmetic, functions, comparisons and logic of single elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import rlx_core as rlx
from rlx_torch.aten.context import refuse
from rlx_torch.aten.promotion import as_value, floating, is_complex, is_float, is_integer, meet, meeting, met_floating
from rlx_torch.aten.table import aten, rows

Unary = Callable[[Any], Any]
Binary = Callable[[Any, Any], Any]


def of_floats(function: Unary) -> Unary:
    """A function of floats; integers become f32 first, as in torch."""
    return lambda x: function(floating(x))


def _unless_whole(function: Unary) -> Unary:
    """A function that leaves integers and bools as they are."""
    return lambda x: function(x) if is_float(x) else x


_FLOATS = (
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"),
    *("sigmoid", "erf", "erfc", "erfinv", "lgamma", "digamma"),
)
rows({name: of_floats(getattr(rlx, name)) for name in _FLOATS})
rows({name: _unless_whole(getattr(rlx, name)) for name in ("floor", "ceil", "trunc", "round")})
rows(
    {
        "abs": lambda x: x if x.dtype == rlx.bool_ else rlx.abs(x),
        "neg": rlx.negative,
        "sign": lambda x: x if x.dtype == rlx.bool_ else rlx.sign(x),
        "sgn": lambda x: x if x.dtype == rlx.bool_ else rlx.sign(x),
        "square": lambda x: rlx.logical_and(x, x) if x.dtype == rlx.bool_ else rlx.multiply(x, x),
        "positive alias clone detach lift_fresh_copy alias_copy detach_copy contiguous": lambda x: x,
        "resolve_conj resolve_neg": lambda x: x,
        "conj _conj _conj_physical conj_physical": rlx.conj,
        "real": rlx.real,
        "imag": rlx.imag,
        "angle": lambda x: rlx.angle(x if is_complex(x) else floating(x)),
        "view_as_real view_as_real_copy": rlx.view_as_real,
        "view_as_complex view_as_complex_copy": rlx.view_as_complex,
        "complex": rlx.make_complex,
        "polar": lambda radius, angle: rlx.make_complex(radius * rlx.cos(angle), radius * rlx.sin(angle)),
        "bitwise_not": lambda x: rlx.logical_not(x) if x.dtype == rlx.bool_ else rlx.bitwise_invert(x),
        "logical_not": lambda x: rlx.logical_not(truth(x)),
        "isnan": lambda x: _never(x) if is_exact(x) else rlx.isnan(x),
        "isinf": lambda x: _never(x) if is_exact(x) else rlx.isinf(x),
        "isfinite": lambda x: rlx.logical_not(_never(x)) if is_exact(x) else rlx.isfinite(x),
        "signbit": lambda x: rlx.signbit(x) if is_float(x) else rlx.less(x, as_value(0, x.dtype)),
        "rad2deg": lambda x: floating(x) * (180 / math.pi),
        "deg2rad": lambda x: floating(x) * (math.pi / 180),
        "frac": lambda x: x - rlx.trunc(x),
    }
)


def is_exact(x: Any) -> bool:
    """Return whether elements are integers or bools, which are never infinite nor NaN."""
    return is_integer(x) or x.dtype == rlx.bool_


def _never(x: Any) -> Any:
    return rlx.zeros(x.shape, dtype=rlx.bool_)


def truth(x: Any) -> Any:
    x = as_value(x)
    return x if x.dtype == rlx.bool_ else rlx.not_equal(x, as_value(0, x.dtype))


@aten("round.decimals")
def round_decimals(x: Any, *, decimals: int) -> Any:
    if is_exact(x):
        return x
    factor = 10.0 ** abs(decimals)
    return rlx.round(x * factor) / factor if decimals >= 0 else rlx.round(x / factor) * factor


@aten("nan_to_num")
def nan_to_num(x: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    if is_exact(x):
        return x
    if is_complex(x):
        refuse("nan_to_num of the real and the imaginary part")
    limits = rlx.finfo(x.dtype)
    x = rlx.where(rlx.isnan(x), as_value(nan or 0.0, x.dtype), x)
    x = rlx.where(
        rlx.equal(x, as_value(math.inf, x.dtype)), as_value(limits.max if posinf is None else posinf, x.dtype), x
    )
    return rlx.where(
        rlx.equal(x, as_value(-math.inf, x.dtype)), as_value(limits.min if neginf is None else neginf, x.dtype), x
    )


# ---------------------------------------------------------------------------------------------- two operands


@aten("add.Tensor", "add.Scalar")
def add(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    a, b = meet(a, b)
    b = b if _is_one(alpha) else multiply(b, as_value(alpha, b.dtype))
    return rlx.logical_or(a, b) if a.dtype == rlx.bool_ else rlx.add(a, b)


@aten("sub.Tensor", "sub.Scalar", "subtract.Tensor")
def sub(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    a, b = meet(a, b)
    return rlx.subtract(a, b if _is_one(alpha) else b * as_value(alpha, b.dtype))


def _is_one(alpha: Any) -> bool:
    return not isinstance(alpha, rlx.Value) and alpha == 1


def by_kind(of_bools: Binary, function: Binary) -> Binary:
    """A function of the dtype that two operands meet in: one of bools, or another."""

    def met(a: Any, b: Any) -> Any:
        a, b = meet(a, b)
        return (of_bools if a.dtype == rlx.bool_ else function)(a, b)

    return met


multiply = by_kind(rlx.logical_and, rlx.multiply)
maximum = by_kind(rlx.logical_or, rlx.maximum)
minimum = by_kind(rlx.logical_and, rlx.minimum)
rows(
    {
        "mul.Tensor mul.Scalar multiply.Tensor": multiply,
        "maximum max.other": maximum,
        "minimum min.other": minimum,
    }
)


@aten("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(a: Any, b: Any) -> Any:
    return rlx.divide(*met_floating(a, b))


@aten("prims::div")
def div_of_one_kind(a: Any, b: Any) -> Any:
    """Division that preserves integers, by truncation."""
    return div(a, b) if is_float(a) or is_complex(a) else div_mode(a, b, rounding_mode="trunc")


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return div(a, b)
    a, b = meet(a, b)
    if rounding_mode == "floor":
        return rlx.floor_divide(a, b)
    if is_float(a):
        return rlx.trunc(rlx.divide(a, b))
    if a.dtype.kind == "uint":
        return rlx.floor_divide(a, b)
    size = rlx.floor_divide(rlx.abs(a), rlx.abs(b))
    return rlx.multiply(size, rlx.multiply(rlx.sign(a), rlx.sign(b)))


@aten("fmod.Tensor", "fmod.Scalar")
def fmod(a: Any, b: Any) -> Any:
    """The remainder with the sign of `a`; its derivative in `b` is the derivative of `a - b·trunc(a / b)`."""
    a, b = meet(a, b)
    if a.dtype.kind == "uint":
        return rlx.remainder(a, b)
    part = rlx.remainder(rlx.abs(a), rlx.abs(b))
    return rlx.where(rlx.less(a, as_value(0, a.dtype)), -part, part)


@aten("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def pow(a: Any, b: Any) -> Any:
    if isinstance(b, int | float) and isinstance(a, rlx.Value) and is_float(a):
        if b == 2:
            return rlx.multiply(a, a)
        if b == 1:
            return a
    return rlx.pow(*meet(a, b))


_BOTH_FLOAT = {"atan2": rlx.atan2, "hypot": rlx.hypot, "logaddexp": rlx.logaddexp, "nextafter": rlx.nextafter}
rows({name: lambda a, b, f=function: f(*met_floating(a, b)) for name, function in _BOTH_FLOAT.items()})
rows({"copysign.Tensor copysign.Scalar": lambda a, b: rlx.copysign(*met_floating(a, b))})


@aten("atan2.out")
def atan2_out(a: Any, b: Any, *, out: Any) -> Any:
    """The result alone: where it is written is torch's affair."""
    return as_value(rlx.atan2(*met_floating(a, b)), out.dtype)


@aten("logaddexp2")
def logaddexp2(a: Any, b: Any) -> Any:
    a, b = met_floating(a, b)
    factor = math.log(2.0)
    return rlx.logaddexp(a * factor, b * factor) * (1 / factor)


def _but_nan(function: Any) -> Any:
    """The other operand where one is NaN."""

    def chosen(a: Any, b: Any) -> Any:
        a, b = meet(a, b)
        if is_exact(a):
            return function(a, b)
        return rlx.where(rlx.isnan(a), b, rlx.where(rlx.isnan(b), a, function(a, b)))

    return chosen


rows({"fmax prims::fmax": _but_nan(maximum), "fmin prims::fmin": _but_nan(minimum)})


@aten("clamp", "clamp.Tensor", "clip", "clip.Tensor")
def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    dtype = meeting(x, *(bound for bound in (min, max) if bound is not None))
    x = as_value(x, dtype)
    if any(isinstance(bound, rlx.Value) for bound in (min, max)):
        low, high = (bound if bound is None else as_value(bound, dtype) for bound in (min, max))
        x = x if low is None else rlx.where(rlx.less(x, low), low, x)
        return x if high is None else rlx.where(rlx.less(high, x), high, x)
    return rlx.clip(x, *(bound if bound is None else as_value(bound, dtype) for bound in (min, max)))


rows(
    {
        "clamp_min clamp_min.Tensor": lambda x, min: clamp(x, min),
        "clamp_max clamp_max.Tensor": lambda x, max: clamp(x, None, max),
        "polygamma": lambda n, x: rlx.polygamma(n, floating(x)),
        "rsub.Tensor rsub.Scalar": lambda a, b, alpha=1: sub(b, a, alpha=alpha),
        "floor_divide floor_divide.Scalar": lambda a, b: rlx.floor_divide(*meet(a, b)),
        "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor": lambda a, b: rlx.remainder(*meet(a, b)),
    }
)


@aten("_to_copy", "to.dtype", "to.dtype_layout", "to.device", "to.other")
def to_copy(x: Any, *args: Any, dtype: Any = None, **where: Any) -> Any:
    """`x` in another dtype, wherever torch would hold it. A complex value becomes real by its real part."""
    required = [each for each in args if isinstance(each, type(rlx.f32))]
    required += [each.dtype for each in args if isinstance(each, rlx.Value)]
    dtype = required[0] if required else dtype
    return x if dtype is None else convert(x, dtype)


@aten("prims::convert_element_type")
def convert(x: Any, dtype: Any) -> Any:
    if x.dtype == dtype:
        return x
    if dtype == rlx.bool_:
        return truth(x)
    if is_complex(x) and dtype.kind != "complex":
        x = rlx.real(x)
    return rlx.astype(x, dtype)


rows(
    {
        "type_as": lambda x, other: convert(x, other.dtype),
        "copy": lambda x, source, non_blocking=False: rlx.broadcast_to(convert(source, x.dtype), x.shape),
    }
)


# ----------------------------------------------------------------------------------- special functions


special = rlx.special


def _two(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(*met_floating(a, b))


rows(
    {
        "prims::ndtri special_ndtri": of_floats(special.ndtri),
        "special_log_ndtr": of_floats(special.log_ndtr),
        "prims::erfcx special_erfcx": of_floats(special.erfcx),
        "prims::bessel_i0 special_i0 special_modified_bessel_i0": of_floats(special.i0),
        "prims::bessel_i0e special_i0e": of_floats(special.i0e),
        "prims::bessel_i1 special_i1 special_modified_bessel_i1": of_floats(special.i1),
        "prims::bessel_i1e special_i1e": of_floats(special.i1e),
        "prims::spherical_bessel_j0 special_spherical_bessel_j0": of_floats(lambda x: rlx.sinc(x * (1 / math.pi))),
        "prims::zeta special_zeta": _two(special.zeta),
        "prims::igamma igamma": _two(special.gammainc),
        "prims::igammac igammac": _two(special.gammaincc),
        "xlogy.Tensor xlogy.Scalar_Other xlogy.Scalar_Self": _two(special.xlogy),
        "special_xlog1py special_xlog1py.other_scalar special_xlog1py.self_scalar": _two(special.xlog1py),
    }
)


@aten("gcd", "prims::gcd")
def gcd(a: Any, b: Any) -> Any:
    """The greatest common divisor by Euclid's algorithm, for all elements until the last is done."""
    a, b = rlx.broadcast_arrays(*(rlx.abs(v) for v in meet(a, b)))

    def step(pair: Any) -> Any:
        a, b = pair
        is_done = b == 0
        return rlx.where(is_done, a, b), rlx.where(is_done, 0, rlx.remainder(a, rlx.where(is_done, 1, b)))

    return rlx.while_loop(lambda pair: rlx.any(pair[1] != 0), step, (a, b))[0]


# ------------------------------------------------------------------------- comparisons, logic and bits


_COMPARED = {
    "eq": rlx.equal, "ne": rlx.not_equal, "lt": rlx.less, "le": rlx.less_equal,
    "gt": rlx.greater, "ge": rlx.greater_equal,
}  # fmt: skip
rows({f"{name}.Tensor {name}.Scalar": lambda a, b, f=f: f(*meet(a, b)) for name, f in _COMPARED.items()})

_LOGICAL = {"and": rlx.logical_and, "or": rlx.logical_or, "xor": rlx.logical_xor}
_BITWISE = {"and": rlx.bitwise_and, "or": rlx.bitwise_or, "xor": rlx.bitwise_xor}


for _name, _logical in _LOGICAL.items():
    aten(f"logical_{_name}")(lambda a, b, f=_logical: f(truth(a), truth(b)))
    _forms = (f"bitwise_{_name}.Tensor", f"bitwise_{_name}.Scalar", f"bitwise_{_name}.Scalar_Tensor")
    aten(*_forms, f"__{_name}__.Tensor", f"__{_name}__.Scalar")(by_kind(_logical, _BITWISE[_name]))

_LEFT = "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar __lshift__.Scalar __lshift__.Tensor"
_RIGHT = "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar __rshift__.Scalar __rshift__.Tensor"
rows(
    {
        _LEFT: lambda a, b: rlx.bitwise_left_shift(*meet(a, b)),
        _RIGHT: lambda a, b: rlx.bitwise_right_shift(*meet(a, b)),
        "where.self where.ScalarOther where.ScalarSelf where.Scalar": lambda condition, a, b: rlx.where(
            truth(condition), *meet(a, b)
        ),
        "masked_fill.Scalar masked_fill.Tensor": lambda x, mask, value: rlx.where(mask, as_value(value, x.dtype), x),
    }
)
