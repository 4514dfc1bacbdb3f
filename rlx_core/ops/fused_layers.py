"""Fused layers: an attention block with its projections, and the encoder layer around it.

Both decompose into the smaller fused ops, so that a backend without a kernel for the layer still uses its kernels for those.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from attrs import field

from rlx_core.errors import ShapeError, WrongInputCountError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, expect_dtype, expect_rank, expect_shape
from rlx_core.ops.attention import attention
from rlx_core.ops.attention_masks import MaskKind
from rlx_core.ops.attention_scores import EmptyRow
from rlx_core.ops.fused import activated, as_activation, expect_projection, fused_matmul_bias_act, fused_residual_ln
from rlx_core.ops.kinds import promoted
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.movement import narrow
from rlx_core.ops.rope import rope
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.validators import number, one_of, whole


def projected(x: Value, w: Value, b: Value | None, activation: Op | None = None) -> Value:
    """Return `activation(x·w [+ b])`, as one op if there is a bias."""
    if b is not None:
        return fused_matmul_bias_act(x, w, b, activation=activation)
    return activated(mat_mul(x, w), activation)


@define_op
class FusedAttentionBlock(Op):
    """Self-attention with its projections: `attention(split(h·qkv_w [+ qkv_b]))·out_w [+ out_b]`.

    The packed projection contains the queries of all heads, then the keys, then the values. With tables, queries and keys are
    rotated on the whole head.

    Shapes:
        hidden: f[b, s, e]    qkv_w: f[e, (h + 2·kv)·d]    out_w: f[h·d, e]    mask?: as for `Attention`
        qkv_b?: f[(h + 2·kv)·d]    out_b?: f[e]    cos?, sin?: f[rows, d/2]    ->    y: f[b, s, e]

    Attributes:
        num_heads, head_dim, num_kv_heads, mask_kind, window, score_scale, attn_logit_softcap, empty_row: As for `Attention`.
    """

    category: ClassVar = "compute"
    num_heads: int = field(validator=whole(1))
    head_dim: int = field(validator=whole(1))
    num_kv_heads: int | None = field(default=None, validator=whole(1, optional=True))
    mask_kind: MaskKind = field(default="none", validator=one_of("none", "causal", "sliding_window", "custom"))
    window: int | None = field(default=None, validator=whole(0, optional=True))
    score_scale: float | None = None
    attn_logit_softcap: float | None = field(default=None, validator=number(0, is_open=True, optional=True))
    empty_row: EmptyRow = "zero"

    def prepare(
        self,
        hidden: Value,
        qkv_w: Value,
        out_w: Value,
        mask: Value | None = None,
        qkv_b: Value | None = None,
        out_b: Value | None = None,
        cos: Value | None = None,
        sin: Value | None = None,
    ) -> tuple[Value | None, ...]:
        hidden, qkv_w, out_w, *others = promoted(hidden, qkv_w, out_w, qkv_b, out_b, cos, sin)  # type: ignore[assignment]
        return (hidden, qkv_w, out_w, mask, *others)

    def infer(
        self,
        hidden: TensorType,
        qkv_w: TensorType,
        out_w: TensorType,
        mask: TensorType | None = None,
        qkv_b: TensorType | None = None,
        out_b: TensorType | None = None,
        cos: TensorType | None = None,
        sin: TensorType | None = None,
    ) -> TensorType:
        expect_dtype("hidden", hidden, FLOATS, "float")
        expect_rank("hidden", hidden, 3, 3)
        heads_width = self.num_heads * self.head_dim
        packed = heads_width + 2 * self._kv_width
        expect_projection("qkv_w", qkv_w, hidden, packed)
        expect_projection("out_w", out_w, hidden.with_shape((heads_width,)), hidden.shape[-1])
        for name, b, width in (("qkv_b", qkv_b, packed), ("out_b", out_b, hidden.shape[-1])):
            if b is not None:
                expect_dtype(name, b, (hidden.dtype,))
                expect_shape(name, b, (width,))
        if (cos is None) != (sin is None):
            raise WrongInputCountError("cos and sin come together")
        q, kv = (hidden.with_shape((*hidden.shape[:2], width)) for width in (heads_width, self._kv_width))
        attention.op(**self._attention).infer(q, kv, kv, mask)
        if cos is not None and sin is not None:
            rope.op(head_dim=self.head_dim).infer(q, cos, sin)
        return hidden

    def decompose(
        self,
        hidden: Value,
        qkv_w: Value,
        out_w: Value,
        mask: Value | None = None,
        qkv_b: Value | None = None,
        out_b: Value | None = None,
        cos: Value | None = None,
        sin: Value | None = None,
    ) -> Value:
        packed = projected(hidden, qkv_w, qkv_b)
        widths = (self.num_heads * self.head_dim, self._kv_width, self._kv_width)
        starts = (0, widths[0], widths[0] + widths[1])
        q, k, v = (narrow(packed, axis=2, start=s, length=n) for s, n in zip(starts, widths, strict=True))
        if cos is not None:
            q, k = (rope(x, cos, sin, head_dim=self.head_dim) for x in (q, k))
        return projected(attention(q, k, v, mask, **self._attention), out_w, out_b)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        common: dict[str, Any] = {"num_heads": 2, "head_dim": 2}
        for d in FLOATS:
            yield Sample(f"{d}[2, 3, 5]", f"{d}[5, 12]", f"{d}[4, 5]", "bool[2, 3]", f"{d}[12]", f"{d}[5]", **common)
        yield Sample("f64[1, 3, 5]", "f64[5, 12]", "f64[4, 5]", **common, mask_kind="causal", attn_logit_softcap=1.5)
        yield Sample("f64[1, 3, 5]", "f64[5, 12]", "f64[4, 5]", None, None, None, "f64[3, 1]", "f64[3, 1]", **common,
                     score_scale=0.3)  # fmt: skip
        yield Sample(
            "f64[1, 3, 5]", "f64[5, 16]", "f64[8, 5]", None, "f64[16]", num_heads=4, num_kv_heads=2, head_dim=2
        )
        yield Rejected(
            "f32[1, 3, 5]", "f32[5, 8]", "f32[4, 5]", **common, error=ShapeError, says="qkv_w must be [5, 12]"
        )
        yield Rejected(
            "f32[1, 3, 5]", "f32[5, 12]", "f32[4, 4]", **common, error=ShapeError, says="out_w must be [4, 5]"
        )
        yield Rejected("f32[1, 3, 5]", "f32[5, 12]", "f32[4, 5]", None, None, None, "f32[3, 1]", **common,
                       error=WrongInputCountError, says="come together")  # fmt: skip

    @property
    def _kv_width(self) -> int:
        return (self.num_heads if self.num_kv_heads is None else self.num_kv_heads) * self.head_dim

    @property
    def _attention(self) -> dict[str, Any]:
        return {**self.attributes(), "layout": "bsd"}


fused_attention_block = op_function(FusedAttentionBlock)


@define_op
class FusedTransformerLayer(Op):
    """A post-norm encoder layer: `h = LN1(attn(x)·Wo + x)`, `y = LN2(act(h·W1)·W2 + h)`, with optional biases.

    Shapes:
        hidden: f[b, s, e]    qkv_w: f[e, 3·h·d]    out_w: f[h·d, e]    ln1_g, ln1_b, ln2_g, ln2_b: f[e]
        fc1_w: f[e, i]    fc2_w: f[i, e]    mask?: as for `Attention`    qkv_b?: f[3·h·d]    out_b?, fc2_b?: f[e]
        fc1_b?: f[i]    ->    y: f[b, s, e]

    Attributes:
        num_heads, head_dim: As for `Attention`.
        intermediate_size: i, the number of features between the two products.
        eps1, eps2: The eps of the two norms.
        activation: The activation between the two products.
    """

    category: ClassVar = "compute"
    num_heads: int = field(validator=whole(1))
    head_dim: int = field(validator=whole(1))
    intermediate_size: int = field(validator=whole(1))
    eps1: float = field(default=1e-5, validator=number(0))
    eps2: float = field(default=1e-5, validator=number(0))
    activation: Op | None = field(default=None, converter=as_activation)

    def prepare(self, *x: Value | None) -> tuple[Value | None, ...]:
        mask = x[9] if len(x) > 9 else None
        ready = promoted(*(v for i, v in enumerate(x) if i != 9))
        return ready if len(x) <= 9 else (*ready[:9], mask, *ready[9:])

    def infer(
        self,
        hidden: TensorType,
        qkv_w: TensorType,
        out_w: TensorType,
        ln1_g: TensorType,
        ln1_b: TensorType,
        fc1_w: TensorType,
        fc2_w: TensorType,
        ln2_g: TensorType,
        ln2_b: TensorType,
        mask: TensorType | None = None,
        qkv_b: TensorType | None = None,
        out_b: TensorType | None = None,
        fc1_b: TensorType | None = None,
        fc2_b: TensorType | None = None,
    ) -> TensorType:
        self._attention.infer(hidden, qkv_w, out_w, mask, qkv_b, out_b)
        inner = self.intermediate_size
        expect_projection("fc1_w", fc1_w, hidden, inner)
        expect_projection("fc2_w", fc2_w, hidden.with_shape((inner,)), hidden.shape[-1])
        widths = dict.fromkeys(("ln1_g", "ln1_b", "ln2_g", "ln2_b", "fc2_b"), hidden.shape[-1]) | {"fc1_b": inner}
        vectors = {"ln1_g": ln1_g, "ln1_b": ln1_b, "ln2_g": ln2_g, "ln2_b": ln2_b, "fc1_b": fc1_b, "fc2_b": fc2_b}
        for name, vector in vectors.items():
            if vector is not None:
                expect_dtype(name, vector, (hidden.dtype,))
                expect_shape(name, vector, (widths[name],))
        return hidden

    def decompose(
        self,
        hidden: Value,
        qkv_w: Value,
        out_w: Value,
        ln1_g: Value,
        ln1_b: Value,
        fc1_w: Value,
        fc2_w: Value,
        ln2_g: Value,
        ln2_b: Value,
        mask: Value | None = None,
        qkv_b: Value | None = None,
        out_b: Value | None = None,
        fc1_b: Value | None = None,
        fc2_b: Value | None = None,
    ) -> Value:
        attended = self._attention(hidden, qkv_w, out_w, mask, qkv_b, out_b)
        h = fused_residual_ln(attended, hidden, ln1_g, ln1_b, eps=self.eps1)
        inner = projected(h, fc1_w, fc1_b, self.activation)
        return fused_residual_ln(projected(inner, fc2_w, fc2_b), h, ln2_g, ln2_b, eps=self.eps2)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        settings: dict[str, Any] = {"num_heads": 2, "head_dim": 2, "intermediate_size": 6}

        def types(d: str, mask: str | None) -> list[str | None]:
            vector = f"{d}[4]"
            return [f"{d}[2, 3, 4]", f"{d}[4, 12]", f"{d}[4, 4]", vector, vector, f"{d}[4, 6]", f"{d}[6, 4]", vector,
                    vector, mask]  # fmt: skip

        for d in FLOATS:
            yield Sample(
                *types(f"{d}", "bool[2, 3]"), f"{d}[12]", f"{d}[4]", f"{d}[6]", f"{d}[4]", **settings, activation="gelu"
            )
        yield Sample(*types("f64", "bool[2, 3]"), **settings, activation="silu", eps1=0.1, eps2=0.2)
        yield Sample(*types("f64", None), **settings, activation=None)
        yield Rejected(*types("f32", None), num_heads=2, head_dim=2, intermediate_size=5, error=ShapeError,
                       says="fc1_w must be [4, 5]")  # fmt: skip
        yield Rejected(*types("f32", None), "f32[11]", **settings, error=ShapeError, says="qkv_b must be [12]")

    @property
    def _attention(self) -> FusedAttentionBlock:
        return FusedAttentionBlock(num_heads=self.num_heads, head_dim=self.head_dim)


fused_transformer_layer = op_function(FusedTransformerLayer)

OPS: tuple[type[Op], ...] = (FusedAttentionBlock, FusedTransformerLayer)
