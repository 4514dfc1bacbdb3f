"""Numbers and types by the kind of their elements: the same for one lane and for sixteen."""

from __future__ import annotations

import struct
from typing import Any, Final

from rlx_core.ir.dtypes import DType, bool_, f16, f32, f64, i8, i16, i32, i64
from rlx_cpu.native.llvm.ir.types import (
    DoubleType,
    FloatType,
    HalfType,
    IntType,
    Type,
    VectorType,
)
from rlx_cpu.native.llvm.ir.values import LlvmConstant, LlvmValue

_FLOATS: Final = {HalfType: f16, FloatType: f32, DoubleType: f64}
_INTEGERS: Final = {1: bool_, 8: i8, 16: i16, 32: i32, 64: i64}


def width(value: LlvmValue) -> int:
    """The lanes of a value; 1 for a scalar."""
    return value.type.count if isinstance(value.type, VectorType) else 1


def element_of(type: Type) -> Any:
    """The type of a lane."""
    return type.element if isinstance(type, VectorType) else type


def in_lanes(element: Type, lanes: int) -> Type:
    """The type of as many of these: a vector for more than one."""
    return element if lanes == 1 else VectorType(element, lanes)


def dtype_of(type: Type) -> DType:
    """Return the dtype of a register of this type; for integers the signed one."""
    element = element_of(type)
    dtype = _FLOATS.get(element.__class__)
    return _INTEGERS[element.width] if dtype is None else dtype


def integer_like(type: Type) -> Any:
    """The integer type, or vector of it, that has as many bits as a float type."""
    if isinstance(type, VectorType):
        return VectorType(integer_like(type.element), type.count)
    return IntType(8 * _FLOATS[type.__class__].itemsize)


def suffix(type: Any) -> str:
    """Return the suffix of a type in names of intrinsics: `v16f32`."""
    if isinstance(type, VectorType):
        return f"v{type.count}{suffix(type.element)}"
    dtype = _FLOATS.get(type.__class__)
    return f"i{type.width}" if dtype is None else dtype.name


def constant(type: Any, number: float | int | bool) -> LlvmConstant:
    """A number as a constant of a scalar or vector type."""
    if isinstance(type, VectorType):
        return LlvmConstant(type, [constant(type.element, number)] * type.count)
    if isinstance(type, HalfType | DoubleType):
        return LlvmConstant(type, float(number))
    if isinstance(type, FloatType):
        return LlvmConstant(type, struct.unpack("<f", struct.pack("<f", _in_float(float(number))))[0])
    return LlvmConstant(type, int(number) & ((1 << type.width) - 1))


def _in_float(number: float) -> float:
    """`number`, or the infinity that rounding it to f32 gives."""
    try:
        struct.pack("<f", number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
    return number
