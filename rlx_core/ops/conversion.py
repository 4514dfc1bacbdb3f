"""The linear conversions of elements: cast, conjugate, real.

Like the structural ops they are defined before the base classes of ops, and their rules only use one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rlx_core import ops
from rlx_core.errors import DtypeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import COMPLEXES, INEXACT, DType, dtype
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Op, Zero, define_op
from rlx_core.ir.strides import Strides
from rlx_core.ir.types import TensorType, expect_dtype

if TYPE_CHECKING:  # for the laws
    from rlx_core.ops.samples import Rejected, Sample


def linear_jvp(op: Op, t: Sequence[Any], *x: Value, y: Value) -> Any:
    """Return the JVP of a linear op of one operand: the op itself, applied to the tangent."""
    return op(t[0])


def bilinear_jvp(op: Op, t: Sequence[Value | Zero], a: Value, b: Value, *others: Value, y: Value) -> Any:
    """The `jvp` of an op that is linear in each of its first two operands."""
    if isinstance(t[0], Zero):
        return op(a, t[1], *others)
    of_first = op(t[0], b, *others)
    return of_first if isinstance(t[1], Zero) else of_first + op(a, t[1], *others)


def zero_vjp(op: Op, g: Value, *x: Value, y: Value) -> tuple[Zero, ...]:
    """The `vjp` of an op whose result is piecewise constant in its operands."""
    return (ZERO,) * len(x)


def zero_jvp(op: Op, t: Sequence[Value | Zero], *x: Value, y: Value) -> Zero:
    """The `jvp` of an op whose result is piecewise constant in its operands."""
    return ZERO


def operand_batch(op: Op, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
    """The `batch` of an op of one operand that may have any leading axes."""
    return op(x[0])


def per_element(count: int) -> Callable[..., Dim]:
    """Return the `cost` of an op that computes so many operations for each element of its first operand."""

    def cost(op: Op, x: TensorType, *others: TensorType | None) -> Dim:
        return count * x.size

    return cost


@define_op
class Cast(Op):
    """Convert to another dtype.

    Float to integer truncates toward zero, saturates, and takes NaN to 0; integer to a narrower one wraps; anything to
    bool is `x != 0`; real to complex has imaginary part 0.

    Raises:
        DtypeError: Complex to real; use `real`, `imag` or `complex_abs`.
    """

    to: DType
    category: ClassVar = "elementwise"
    exact_dtypes: ClassVar = INEXACT
    batch = operand_batch

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype.is_complex and not self.to.is_complex and self.to.is_numeric:
            raise DtypeError(f"{x.dtype} to {self.to} would drop a part; use real, imag or complex_abs")
        return x.with_dtype(self.to)

    def reference(self, x: np.ndarray) -> np.ndarray:
        if self.to.is_complex:
            return x.astype(np.result_type(x, np.complex64), copy=False)
        if self.to.is_float and x.dtype.kind == "f":
            # The interpreter rounds every result to the declared dtype, and does not round in its wide mode.
            return x
        return cast_array(x, self.to)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        if x.dtype.is_float and self.to.is_complex:
            return (cast(2 * real(g), to=x.dtype),)
        return (cast(g, to=x.dtype),)

    jvp = linear_jvp

    def view(self, x: TensorType, strides: Strides, offset: int) -> tuple[int, Strides] | None:
        return (offset, strides) if x.dtype is self.to else None

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for pair in (
            "f32 f64",
            "f32 f16",
            "f64 bf16",
            "f64 f32",
            "f32 i8",
            "i64 i8",
            "i32 bool",
            "bool f32",
            "f32 c64",
            "u8 i16",
        ):
            source, to = pair.split()
            yield ops.Sample(f"{source}[3, 2]", to=dtype(to), low=-4.0, high=4.0)
        yield ops.Rejected("c64[2]", to=dtype("f32"), error=DtypeError, says="drop a part")


cast = op_function(Cast)


def cast_array(x: np.ndarray, to: DType) -> np.ndarray:
    """Return `x` with the elements converted by the rules of `Cast`."""
    if to.name == "bool":
        return x != 0
    if to.is_integer and x.dtype.kind not in "iub":
        limits = np.iinfo(to.numpy)
        truncated = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        # Two-sided comparison instead of np.clip: float(2**63 - 1) rounds up and would overflow when converted back.
        inside = np.where((truncated > limits.min) & (truncated < float(limits.max)), truncated, 0).astype(to.numpy)
        return np.where(
            truncated >= float(limits.max), limits.max, np.where(truncated <= limits.min, limits.min, inside)
        )
    return x.astype(to.numpy)


def widened(x: Value) -> Value:
    """Return `x` in the dtype in which it is summed: f16 and bf16 become f32."""
    return x if x.dtype.accumulator is x.dtype else cast(x, to=x.dtype.accumulator)


def as_dtype(x: Value, to: DType) -> Value:
    """Return `x` in the dtype `to`, without a node if it has it already. A widened result is thus rounded once."""
    return x if x.dtype is to else cast(x, to=to)


@define_op
class Conjugate(Op):
    """The complex conjugate."""

    category: ClassVar = "elementwise"
    exact_dtypes: ClassVar = INEXACT
    batch = operand_batch

    def infer(self, z: TensorType) -> TensorType:
        expect_dtype("z", z, COMPLEXES, "complex")
        return z

    def reference(self, z: np.ndarray) -> np.ndarray:
        return np.conjugate(z)

    def vjp(self, g: Value, z: Value, *, y: Value) -> tuple[Value, ...]:
        return (conjugate(g),)

    jvp = linear_jvp

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield ops.Sample("c64[3]")
        yield ops.Sample("c128[2, 2]")
        yield ops.Rejected("f32[3]", error=DtypeError, says="complex")


conjugate = op_function(Conjugate)


class PartOfComplex(Op):
    """Base of the ops from a complex value to a real one."""

    category: ClassVar = "elementwise"
    batch = operand_batch

    def infer(self, z: TensorType) -> TensorType:
        expect_dtype("z", z, COMPLEXES, "complex")
        return z.with_dtype(z.dtype.component)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in COMPLEXES:
            yield ops.Sample(f"{d}[3, 4]")
        yield ops.Sample("c64[]")
        yield ops.Sample("c64[0, 2]")
        yield ops.Rejected("f32[3]", error=DtypeError, says="complex")


@define_op
class Real(PartOfComplex):
    """The real part. The cotangent of a complex z is ∂L/∂z̄, hence the half in reverse mode."""

    exact_dtypes: ClassVar = INEXACT

    def reference(self, z: np.ndarray) -> np.ndarray:
        return np.real(z).copy()  # a copy, because a view would change with z

    def vjp(self, g: Value, z: Value, *, y: Value) -> tuple[Value, ...]:
        return (cast(g * 0.5, to=z.dtype),)

    jvp = linear_jvp


real = op_function(Real)
