"""Fused ops: ops that a backend may run as one kernel, each equal to its decomposition for every attribute value.

Optional operands come last and are used if present; no attribute repeats information of the operands. All rules follow from the
decompositions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from attrs import field

from rlx_core.errors import ConfigError, DtypeError, ShapeError, UnknownNameError, nearest
from rlx_core.ir.apply import OpFunction, op_function
from rlx_core.ir.dims import Dim, exact_quotient, require
from rlx_core.ir.dtypes import FLOATS, DType, f16, f32
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, expect_dtype, expect_rank, expect_shape
from rlx_core.ops.activation import silu
from rlx_core.ops.conversion import as_dtype
from rlx_core.ops.families import Family
from rlx_core.ops.kinds import promoted
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.movement import narrow
from rlx_core.ops.normalization import LayerNorm, RmsNorm
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.statistics import affine_prepare, expect_affine
from rlx_core.ops.validators import number, optional_dtype

STANDARD: tuple[type[Op], ...] = (*Family("activation"), *Family("piecewise"))

ACTIVATIONS: dict[str, type[Op]] = {op.name.removeprefix("rlx."): op for op in STANDARD if len(op.operands) == 1}
"""The standard functions of one variable by their short names; any other op of one operand is passed as an instance."""


def as_activation(value: Any) -> Op | None:
    """Return an activation attribute from an op, its function or its short name.

    Raises:
        UnknownNameError: No standard function has that name.
        ConfigError: It is not an op of one operand.
    """
    if isinstance(value, str):
        if value not in ACTIVATIONS:
            raise UnknownNameError(f"activation: no function is called {value!r}", hint=nearest(value, ACTIVATIONS))
        return ACTIVATIONS[value]()
    activation = value.op() if isinstance(value, OpFunction) else value
    if activation is not None and not (isinstance(activation, Op) and len(activation.operands) == 1):
        raise ConfigError(f"activation: must be an op of one operand or its name, not {value!r}")
    return activation


def activated(x: Value, activation: Op | None) -> Value:
    """Return `x` after an activation, or unchanged."""
    return x if activation is None else activation(x)


@define_op(name="fused_matmul_bias_act")
class FusedMatMulBiasAct(Op):
    """A product, a bias and an activation: `activation(x·w + b)`.

    Shapes:
        x: f[.., k]    w: f[.., k, n]    b: f[n]    ->    y: f[.., n]

    Attributes:
        activation: An op of one operand, or its short name; none by default.
    """

    category: ClassVar = "compute"
    activation: Op | None = field(default=None, converter=as_activation)

    def prepare(self, x: Value, w: Value, b: Value) -> tuple[Value | None, ...]:
        return promoted(x, w, b)

    def infer(self, x: TensorType, w: TensorType, b: TensorType) -> TensorType:
        from_product = mat_mul.op().infer(x, w)
        expect_dtype("x", x, FLOATS, "float")
        expect_dtype("b", b, (x.dtype,))
        expect_shape("b", b, from_product.shape[-1:])
        return from_product

    def decompose(self, x: Value, w: Value, b: Value) -> Value:
        return activated(mat_mul(x, w) + b, self.activation)

    def cost(self, x: TensorType, w: TensorType, b: TensorType) -> Dim:
        return 2 * self.infer(x, w, b).size * x.shape[-1]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 4]", f"{d}[4, 5]", f"{d}[5]", activation="gelu")
        yield Sample("f64[2, 3, 4]", "f64[4, 4]", "f64[4]")
        for name in ("silu", "tanh", "gelu_approx", "sigmoid"):
            yield Sample("f64[3, 4]", "f64[4, 5]", "f64[5]", activation=name)
        yield Rejected("f32[3, 4]", "f32[4, 5]", "f32[4]", error=ShapeError, says="b must be [5]")
        yield Rejected("f32[3, 4]", "f32[5, 5]", "f32[5]", error=ShapeError, says="4 != 5")
        yield Rejected("f32[3, 4]", "f32[4, 5]", "f32[5]", activation="gleu", error=UnknownNameError, says="gleu")


fused_matmul_bias_act = op_function(FusedMatMulBiasAct)


class FusedResidual(Op):
    """A residual sum and its norm over the last axis: `norm(x + residual [+ bias])`, and optionally the sum."""

    eps: float
    with_sum: bool

    def prepare(self, x: Value, residual: Value, *affine: Value | None) -> tuple[Value | None, ...]:
        x, residual = promoted(x, residual)  # type: ignore[assignment]
        return (x, residual, *affine_prepare(x, *affine)[1:])

    def infer(
        self,
        x: TensorType,
        residual: TensorType,
        gamma: TensorType | None = None,
        beta: TensorType | None = None,
        bias: TensorType | None = None,
    ) -> TensorType | tuple[TensorType, ...]:
        expect_rank("x", x, 1)
        expect_affine(x, x.shape[-1:], gamma=gamma, beta=beta, bias=bias)
        expect_dtype("residual", residual, (x.dtype,))
        expect_shape("residual", residual, x.shape)
        return (x, x) if self.with_sum else x

    def decompose(
        self,
        x: Value,
        residual: Value,
        gamma: Value | None = None,
        beta: Value | None = None,
        bias: Value | None = None,
    ) -> Value | tuple[Value, ...]:
        total = x + residual
        if bias is not None:
            total = total + as_dtype(bias, x.dtype)
        norm: Op = LayerNorm(eps=self.eps) if isinstance(self, FusedResidualLN) else RmsNorm(eps=self.eps)
        y = norm(total, gamma, beta)
        return (y, total) if self.with_sum else y

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 4]", f"{d}[3, 4]", f"{d}[4]", f"{d}[4]", f"{d}[4]")
        yield Sample("f64[2, 3, 4]", "f64[2, 3, 4]", "f64[4]", "f64[4]", with_sum=True, eps=0.1)
        yield Sample("f64[2, 3, 4]", "f64[2, 3, 4]", "f64[4]", None, "f64[4]", with_sum=True)
        yield Sample("f64[3, 4]", "f64[3, 4]", eps=0.5)
        yield Sample("bf16[3, 4]", "bf16[3, 4]", "f32[4]")
        yield Rejected("f32[3, 4]", "f32[1, 4]", "f32[4]", error=ShapeError, says="residual must be [3, 4]")
        yield Rejected(
            "f32[3, 4]", "f32[3, 4]", "f32[4]", "f32[4]", "f32[3]", error=ShapeError, says="bias must be [4]"
        )
        yield Rejected("i32[3, 4]", "i32[3, 4]", error=DtypeError, says="x must be float")


@define_op
class FusedResidualLN(FusedResidual):
    """`LayerNorm(x + residual [+ bias])` over the last axis; `with_sum` also returns the sum, for pre-norm blocks."""

    category: ClassVar = "boundary"
    eps: float = field(default=1e-5, validator=number(0))
    with_sum: bool = False


@define_op
class FusedResidualRmsNorm(FusedResidual):
    """`RmsNorm(x + residual [+ bias])` over the last axis; `with_sum` also returns the sum, for pre-norm blocks."""

    category: ClassVar = "boundary"
    eps: float = field(default=1e-6, validator=number(0))
    with_sum: bool = False


fused_residual_ln = op_function(FusedResidualLN)
fused_residual_rms_norm = op_function(FusedResidualRmsNorm)


@define_op(name="fused_swiglu")
class FusedSwiGLU(Op):
    """`silu(gate)·up` of the two halves of the last axis, up first.

    Shapes:
        packed: f[.., 2n]    ->    y: f[.., n]

    Attributes:
        gate_first: Whether the first half is the gate.
        cast_to: A dtype for the result.

    Raises:
        ShapeError: The last axis is odd.

    Source:
        Shazeer 2020, "GLU Variants Improve Transformer", arXiv:2002.05202, section 2.
    """

    category: ClassVar = "compute"
    gate_first: bool = False
    cast_to: DType | None = field(default=None, converter=optional_dtype)

    def infer(self, packed: TensorType) -> TensorType:
        expect_dtype("packed", packed, FLOATS, "float")
        expect_rank("packed", packed, 1)
        if not require("divides", 2, packed.shape[-1]):
            raise ShapeError(f"packed must have an even last axis, not {packed.shape[-1]} ({packed})")
        return TensorType(self.cast_to or packed.dtype, (*packed.shape[:-1], exact_quotient(packed.shape[-1], 2)))

    def decompose(self, packed: Value) -> Value:
        axis, n = packed.ndim - 1, exact_quotient(packed.shape[-1], 2)
        first, second = (narrow(packed, axis=axis, start=start, length=n) for start in (0, n))
        gate, up = (first, second) if self.gate_first else (second, first)
        return as_dtype(silu(gate) * up, self.cast_to or packed.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 8]")
        yield Sample("f64[2, 3, 4]", gate_first=True)
        yield Sample("f32[3, 4]", cast_to=f16)
        yield Sample("bf16[3, 4]", cast_to=f32, gate_first=True)
        yield Sample("f32[0, 4]")
        yield Rejected("f32[3, 5]", error=ShapeError, says="even last axis, not 5")


fused_swiglu = op_function(FusedSwiGLU)
