"""Inspection functions of the Python Array API: dtypes and their limits, and the namespace itself.

dtypes may be rlx's or NumPy's; an array may be passed in place of its dtype.
"""

from __future__ import annotations

import importlib
import math
from typing import Any, Final

import numpy as np

from rlx_core.errors import DtypeError, PromotionError, UnknownNameError, nearest
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.array import is_array
from rlx_core.ir.dims import Expr
from rlx_core.ir.dtypes import (
    ALL,
    COMPLEXES,
    FLOATS,
    INTEGERS,
    DType,
    bf16,
    bool_,
    c64,
    dtype,
    f32,
    i64,
    promote,
    weak_dtype,
)
from rlx_core.ir.graph import Value, ambient_builder
from rlx_core.ops.device import device_here, expect_device
from rlx_core.system.records import frozen

API_VERSIONS: Final = ("2021.12", "2022.12", "2023.12", "2024.12")
API_VERSION: Final = API_VERSIONS[-1]

e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None

KINDS: Final = {
    "bool": (bool_,),
    "signed integer": tuple(d for d in INTEGERS if d.kind == "int"),
    "unsigned integer": tuple(d for d in INTEGERS if d.kind == "uint"),
    "integral": INTEGERS,
    "real floating": FLOATS,
    "complex floating": COMPLEXES,
    "numeric": tuple(d for d in ALL if d.is_numeric),
}
"""The kinds of dtypes in the standard. f16 and bf16, which are not part of it, are real floating here."""


def dtype_meant(x: Any) -> DType:
    """Return the dtype for a dtype, its name, a value or an array."""
    source = x.dtype if isinstance(x, Value) or is_array(x) else x
    return dtype(source)


def _kind(name: str) -> tuple[DType, ...]:
    if name not in KINDS:
        raise DtypeError(f"isdtype: {name!r} is not a kind of dtypes", hint=nearest(name, KINDS))
    return KINDS[name]


@checked_call
def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a kind's name, a dtype, or a tuple of these.

    Raises:
        DtypeError: There is no kind of that name.

    >>> isdtype(f32, "real floating"), isdtype(np.dtype("u1"), ("bool", "integral")), isdtype(i64, f32)
    (True, True, False)
    """
    resolved = dtype_meant(dtype)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return any(resolved in _kind(k) if isinstance(k, str) else resolved is dtype_meant(k) for k in kinds)


@frozen
class FloatLimits:
    """The limits of a float dtype, or of the parts of a complex one, as Python's floats."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@frozen
class IntegerLimits:
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


@checked_call
def finfo(type: Any, /) -> FloatLimits:
    """The limits of a float or complex dtype, given by itself or by an array.

    Raises:
        DtypeError: It is not a float or complex dtype.
    """
    resolved = dtype_meant(type).component
    if not resolved.is_float:
        raise DtypeError(f"finfo: {resolved} is not a float dtype", hint="iinfo is for integers")
    if resolved is bf16:
        import ml_dtypes  # NumPy has no bfloat16

        limits: Any = ml_dtypes.finfo(resolved.numpy)  # type: ignore[no-untyped-call]
    else:
        limits = np.finfo(resolved.numpy)
    return FloatLimits(
        bits=8 * resolved.itemsize,
        eps=float(limits.eps),
        max=float(limits.max),
        min=float(limits.min),
        smallest_normal=float(limits.smallest_normal),
        dtype=resolved,
    )


@checked_call
def iinfo(type: Any, /) -> IntegerLimits:
    """The limits of an integer dtype, given by itself or by an array.

    Raises:
        DtypeError: It is not an integer dtype.
    """
    resolved = dtype_meant(type)
    if not resolved.is_integer:
        raise DtypeError(f"iinfo: {resolved} is not an integer dtype", hint="finfo is for floats")
    limits = np.iinfo(resolved.numpy)
    return IntegerLimits(8 * resolved.itemsize, int(limits.max), int(limits.min), resolved)


@checked_call
def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion converts the one dtype to the other, which preserves its values."""
    target = dtype_meant(to)
    try:
        return promote(dtype_meant(from_), target) is target
    except PromotionError:
        return False


@checked_call
def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that arrays, dtypes and Python's numbers promote to; a number has the lowest precedence.

    Raises:
        DtypeError: There are no arguments, or one is of another kind.
        PromotionError: They have no common dtype.

    >>> result_type(f32, np.int64(2)), result_type(np.float16([1]), 2.5), result_type(i64, 1.0)
    (f64, f16, f64)
    """
    if not arrays_and_dtypes:
        raise DtypeError("result_type: takes at least one array or dtype")
    numbers = [0 if isinstance(x, Expr) else type(x)() for x in arrays_and_dtypes if _is_number(x)]
    present = [dtype_meant(x) for x in arrays_and_dtypes if not _is_number(x)]
    return promote(*present, *(weak_dtype(n, present) for n in numbers))


def _is_number(x: Any) -> bool:
    return type(x) in (bool, int, float, complex, Expr)


class NamespaceInfo:
    """The result of `__array_namespace_info__`: the properties of a namespace that the standard defines."""

    def capabilities(self) -> dict[str, Any]:
        """Optional features of the namespace. In a trace shapes do not depend on data, and a computed mask is not an index."""
        is_eager = ambient_builder() is None
        return {"boolean indexing": is_eager, "data-dependent shapes": is_eager, "max dimensions": 64}

    def default_device(self) -> str:
        """The device where arrays are created by default: `target` in a trace, `cpu` outside of one."""
        return device_here()

    def devices(self) -> list[str]:
        """The available devices: the default one alone."""
        return [device_here()]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The default dtypes of new arrays."""
        expect_device("default_dtypes", device)
        return {"real floating": f32, "complex floating": c64, "integral": i64, "indexing": i64}

    def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The dtypes of a kind, or all, by their names in the standard; f16 and bf16 are not among them."""
        expect_device("dtypes", device)
        kinds = tuple(KINDS) if kind is None else (kind,) if isinstance(kind, str) else kind
        selected = {d for k in kinds for d in _kind(k)}
        return {d.numpy.name: d for d in ALL if d in selected and not d.is_narrow}


def array_namespace(api_version: str | None = None) -> Any:
    """The namespace of the functions that take values: this package.

    Raises:
        UnknownNameError: It does not implement that version of the standard.
    """
    if api_version not in (None, *API_VERSIONS):
        raise UnknownNameError(
            f"array API: version {api_version!r} is not one of {', '.join(API_VERSIONS)}", hint="leave the version out"
        )
    return importlib.import_module(__name__.partition(".")[0])


@checked_call
def namespace_info() -> NamespaceInfo:
    """The capabilities of the namespace, and its devices and dtypes."""
    return NamespaceInfo()
