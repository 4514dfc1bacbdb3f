"""The standard blocks of HIR: constructs of model builders, with a chain of ops and a fused form for each.

Attention, rotary embedding and the norms are not blocks: they would be their ops under another name, and a HIR graph contains
both ops and blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from attrs import field

from rlx_core.errors import MissingBiasError, ShapeError, WrongInputCountError
from rlx_core.ir.apply import op_function
from rlx_core.ir.block import Block, define_block
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op
from rlx_core.ops.activation import silu
from rlx_core.ops.attention import attention
from rlx_core.ops.attention_masks import MaskKind
from rlx_core.ops.fused import (
    activated,
    as_activation,
    fused_matmul_bias_act,
    fused_residual_rms_norm,
    fused_swiglu,
)
from rlx_core.ops.linalg import matmul
from rlx_core.ops.movement import concat, narrow
from rlx_core.ops.normalization import rms_norm
from rlx_core.ops.rope import rope
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.validators import number, one_of, whole


@define_block
class LinearBlock(Block):
    """A product with a weight, a bias and an activation: `activation(x·w [+ b])`.

    Shapes:
        x: [.., k] or [k]    w: [k, n]    b?: [n]    ->    y: [.., n]

    Attributes:
        activation: An op of one operand, or its short name; none by default.
        has_bias: Whether there is a bias; a missing or an extra one is an error.
    """

    category: ClassVar = "compute"
    activation: Op | None = field(default=None, converter=as_activation)
    has_bias: bool = False

    def check(self, x: Value, w: Value, b: Value | None = None) -> None:
        if self.has_bias and b is None:
            raise MissingBiasError("linear: has_bias is true, and no bias was given")
        if not self.has_bias and b is not None:
            raise WrongInputCountError("linear: takes 2 operands (x, w) without has_bias, not 3")

    def fusable(self, x: Value, w: Value, b: Value | None = None) -> Value:
        y = matmul(x, w)
        return activated(y if b is None else y + b, self.activation)

    def direct(self, x: Value, w: Value, b: Value | None = None) -> Value:
        if b is None or x.ndim < 2 or b.shape != w.shape[-1:]:  # the fused op does not broadcast its bias
            return self.fusable(x, w, b)
        return fused_matmul_bias_act(x, w, b, activation=self.activation)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[3, 4]", "f32[4, 5]", "f32[5]", activation="gelu", has_bias=True)
        yield Sample("f64[2, 3, 4]", "f64[4, 5]", activation="silu")
        yield Sample("f64[4]", "f64[4, 5]", "f64[5]", has_bias=True)
        yield Rejected("f32[3, 4]", "f32[4, 5]", has_bias=True, error=MissingBiasError, says="no bias was given")
        yield Rejected("f32[3, 4]", "f32[4, 5]", "f32[5]", error=WrongInputCountError, says="takes 2 operands")
        yield Rejected("f32[3, 4]", error=WrongInputCountError, says="takes 2 to 3 operands")
        yield Rejected("f32[3, 4]", "f32[5, 4]", error=ShapeError, says="4 != 5")


linear = op_function(LinearBlock)


@define_block
class LinearFusedBlock(Block):
    """`activation(x·w + b)` as one fused op under both policies."""

    category: ClassVar = "compute"
    activation: Op | None = field(default=None, converter=as_activation)

    def fusable(self, x: Value, w: Value, b: Value) -> Value:
        return fused_matmul_bias_act(x, w, b, activation=self.activation)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[3, 4]", "f32[4, 5]", "f32[5]", activation="gelu")
        yield Rejected("f32[3, 4]", "f32[4, 5]", error=WrongInputCountError, says="takes 3 operands")


@define_block
class SharedLinearPairBlock(Block):
    """One of two products with the same data: one product with the concatenated weights, from which `slot` is sliced.

    Both slots of one `(x, w1, w2)` share the product.

    Shapes:
        x: [.., k]    w1: [k, n1]    w2: [k, n2]    ->    y: [.., n1] in slot 0, [.., n2] in slot 1
    """

    category: ClassVar = "compute"
    slot: Literal[0, 1] = 0

    def fusable(self, x: Value, w1: Value, w2: Value) -> Value:
        both = matmul(x, concat([w1, w2], axis=-1))
        start = w1.shape[-1] if self.slot else 0
        return narrow(both, axis=both.ndim - 1, start=start, length=(w2 if self.slot else w1).shape[-1])

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[3, 4]", "f32[4, 5]", "f32[4, 2]", slot=0)
        yield Sample("f64[2, 3, 4]", "f64[4, 1]", "f64[4, 2]", slot=1)
        yield Rejected("f32[3, 4]", "f32[4, 5]", "f32[3, 5]", error=ShapeError, says="4 != 3")


shared_linear_pair = op_function(SharedLinearPairBlock)


@define_block(kind="swiglu")
class SwiGLUBlock(Block):
    """The gated feed-forward layer: `(silu(x·gate_w)·(x·up_w))·down_w`.

    Shapes:
        x: [.., d]    up_w, gate_w: [d, i]    down_w: [i, d]    ->    y: [.., d]

    Source:
        Shazeer 2020, "GLU Variants Improve Transformer", arXiv:2002.05202, section 2.
    """

    category: ClassVar = "compute"

    def fusable(self, x: Value, up_w: Value, gate_w: Value, down_w: Value) -> Value:
        up, gate = matmul(x, up_w), matmul(x, gate_w)
        return matmul(silu(gate) * up, down_w)

    def direct(self, x: Value, up_w: Value, gate_w: Value, down_w: Value) -> Value:
        if up_w.shape != gate_w.shape:
            return self.fusable(x, up_w, gate_w, down_w)
        return matmul(fused_swiglu(matmul(x, concat([up_w, gate_w], axis=-1))), down_w)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[3, 4]", "f32[4, 6]", "f32[4, 6]", "f32[6, 4]")
        yield Sample("f64[2, 3, 4]", "f64[4, 4]", "f64[4, 4]", "f64[4, 5]")
        yield Rejected("f32[3, 4]", "f32[4, 6]", "f32[4, 5]", "f32[6, 4]", error=ShapeError, says="do not broadcast")
        yield Rejected("f32[3, 4]", "f32[4, 6]", "f32[4, 6]", error=WrongInputCountError, says="takes 4 operands")


swiglu = op_function(SwiGLUBlock)


@define_block
class ResidualRmsNormBlock(Block):
    """The norm of a residual sum: `RmsNorm(x + residual)`.

    Shapes:
        x, residual: [.., d]    weight: [d]    bias?: [d]    ->    y: [.., d]
    """

    category: ClassVar = "boundary"
    eps: float = field(default=1e-6, validator=number(0))

    def fusable(self, x: Value, residual: Value, weight: Value, bias: Value | None = None) -> Value:
        return rms_norm(x + residual, weight, bias, eps=self.eps)

    def direct(self, x: Value, residual: Value, weight: Value, bias: Value | None = None) -> Value:
        if x.shape != residual.shape:
            return self.fusable(x, residual, weight, bias)
        return fused_residual_rms_norm(x, residual, weight, bias, eps=self.eps)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[3, 4]", "f32[3, 4]", "f32[4]")
        yield Sample("f64[2, 3, 4]", "f64[2, 3, 4]", "f64[4]", "f64[4]", eps=0.1)
        yield Rejected("f32[3, 4]", "f32[3, 4]", error=WrongInputCountError, says="takes 3 to 4 operands")


residual_rms_norm = op_function(ResidualRmsNormBlock)


@define_block(kind="llama_decoder")
class LlamaDecoderBlock(Block):
    """A pre-norm decoder layer: `h = x + attn(n)·Wo` with `n = RmsNorm(x)`, then `y = h + swiglu(RmsNorm(h))`.

    Queries and keys are rotated on the whole head; each key head serves `num_heads / num_kv_heads` query heads.

    Shapes:
        x: [b, s, e]    ln1_g, ln1_b, ln2_g, ln2_b: [e]    q_w: [e, h·d]    k_w, v_w: [e, kv·d]    o_w: [h·d, e]
        gate_w, up_w: [e, i]    down_w: [i, e]    cos, sin: [rows, d/2]    mask?: as for `Attention`    ->    y: [b, s, e]

    Attributes:
        num_heads, head_dim, num_kv_heads, mask_kind, window: As for `Attention`.
        eps: The eps of both norms.

    Source:
        Touvron et al. 2023, "LLaMA", arXiv:2302.13971, section 2.2.
    """

    category: ClassVar = "compute"
    num_heads: int = field(validator=whole(1))
    head_dim: int = field(validator=whole(2))
    num_kv_heads: int | None = field(default=None, validator=whole(1, optional=True))
    eps: float = field(default=1e-6, validator=number(0))
    mask_kind: MaskKind = field(default="causal", validator=one_of("none", "causal", "sliding_window", "custom"))
    window: int | None = field(default=None, validator=whole(0, optional=True))

    def fusable(
        self,
        x: Value,
        ln1_g: Value,
        ln1_b: Value,
        q_w: Value,
        k_w: Value,
        v_w: Value,
        o_w: Value,
        ln2_g: Value,
        ln2_b: Value,
        gate_w: Value,
        up_w: Value,
        down_w: Value,
        cos: Value,
        sin: Value,
        mask: Value | None = None,
    ) -> Value:
        h = x + self._attended(rms_norm(x, ln1_g, ln1_b, eps=self.eps), (q_w, k_w, v_w, o_w), cos, sin, mask)
        m = rms_norm(h, ln2_g, ln2_b, eps=self.eps)
        return h + matmul(silu(matmul(m, gate_w)) * matmul(m, up_w), down_w)

    def direct(self, x: Value, ln1_g: Value, ln1_b: Value, *others: Any) -> Value:
        q_w, k_w, v_w, o_w, ln2_g, ln2_b, gate_w, up_w, down_w, cos, sin, *mask = others
        n = rms_norm(x, ln1_g, ln1_b, eps=self.eps)
        attended = self._attended(n, (q_w, k_w, v_w, o_w), cos, sin, *mask)
        m, h = fused_residual_rms_norm(attended, x, ln2_g, ln2_b, eps=self.eps, with_sum=True)
        return h + matmul(fused_swiglu(matmul(m, concat([up_w, gate_w], axis=-1))), down_w)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample(*llama_types(heads=2, kv=2), num_heads=2, head_dim=2, low=-1.0, high=1.0)
        yield Sample(*llama_types(heads=4, kv=2), num_heads=4, num_kv_heads=2, head_dim=2, eps=0.1)
        yield Sample(*llama_types(heads=2, kv=1), "bool[2, 3]", num_heads=2, num_kv_heads=1, head_dim=2, mask_kind="custom",
                     make=partly_visible)  # fmt: skip
        yield Rejected(*llama_types(heads=2, kv=2)[:13], num_heads=2, head_dim=2, error=WrongInputCountError,
                       says="takes 14 to 15 operands")  # fmt: skip
        yield Rejected(
            *llama_types(heads=2, kv=1), num_heads=2, head_dim=2, error=ShapeError, says="heads of 1 features"
        )

    def _attended(self, n: Value, weights: Sequence[Value], cos: Value, sin: Value, mask: Value | None = None) -> Value:
        """Return attention on a normalised state, projected back."""
        q_w, k_w, v_w, o_w = weights
        q, k = (rope(matmul(n, w), cos, sin, head_dim=self.head_dim) for w in (q_w, k_w))
        o = attention(
            q,
            k,
            matmul(n, v_w),
            mask,
            num_heads=self.num_heads,
            head_dim=self.head_dim,
            num_kv_heads=self.num_kv_heads,
            mask_kind=self.mask_kind,
            window=self.window,
        )
        return matmul(o, o_w)


llama_decoder = op_function(LlamaDecoderBlock)


def llama_types(heads: int, kv: int) -> list[str]:
    """Return the operand types of a small decoder layer with heads of two features."""
    e, i, q, k = 4, 6, 2 * heads, 2 * kv
    norm = [f"f64[{e}]"] * 2
    projections = [f"f64[{e}, {q}]", f"f64[{e}, {k}]", f"f64[{e}, {k}]", f"f64[{q}, {e}]"]
    feed_forward = [f"f64[{e}, {i}]", f"f64[{e}, {i}]", f"f64[{i}, {e}]"]
    return [f"f64[2, 3, {e}]", *norm, *projections, *norm, *feed_forward, "f64[5, 1]", "f64[5, 1]"]


def partly_visible(rng: np.random.Generator) -> list[np.ndarray]:
    """Return the arrays of a decoder layer in which the second sequence is one position shorter."""
    shapes = [tuple(map(int, t[4:-1].split(", "))) for t in llama_types(heads=2, kv=1)]
    return [*(rng.uniform(-1, 1, s) for s in shapes), np.array([[True, True, True], [True, True, False]])]
