"""Attention over keys and values of 8-bit codes: a cache in a quarter of the bytes of f32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import f32, f64, i8
from rlx_core.ir.graph import Value
from rlx_core.ir.op import define_op
from rlx_core.ir.types import Shape, TensorType, expect_dtype, expect_shape
from rlx_core.ops.attention import Attention, attention
from rlx_core.ops.attention_masks import AttentionLayout, heads_shape
from rlx_core.ops.attention_scores import AttentionOp, attention_operands
from rlx_core.ops.conversion import as_dtype
from rlx_core.ops.linalg import reshaped
from rlx_core.ops.samples import Rejected, Sample


@define_op
class QuantizedAttention(AttentionOp):
    """`Attention` whose keys and values are codes times scales: one scale for each position and head.

    Of a key k_j = s_j·c_j the score is (q·c_j)·s_j, and of values v_j = t_j·d_j the result is Σ (p_j·t_j)·d_j: kernels read the
    codes and multiply once for each key, and no keys or values of floats are in memory.

    Shapes:
        q: f[b, s, h·d]    k: i8[b, t, kv·d]    v: i8[b, t, kv·e]    ->    y: f[b, s, h·e]         (layout bsd; rank 2: b = 1)
        key_scales, value_scales: f[b, t, kv]; in layout bhsd f[b, kv, t]; of rank 2 f[t, kv]
        mask?, bias?, lengths?: as of `Attention`

    Attributes:
        num_heads, head_dim, num_kv_heads, layout, mask_kind, window: As of `Attention`.
        score_scale, attn_logit_softcap, empty_row: As of `Attention`.

    Raises:
        DtypeError: q is not f32 or f64, scales have another dtype than q, or codes are not i8.
        ShapeError: Scales have other shapes; or as for `Attention`.
    """

    category: ClassVar = "compute"
    mask_operand: ClassVar = 5

    def prepare(
        self,
        q: Value,
        k: Value,
        v: Value,
        key_scales: Value,
        value_scales: Value,
        mask: Value | None = None,
        bias: Value | None = None,
        lengths: Value | None = None,
    ) -> tuple[Value | None, ...]:
        _, _, _, mask, bias, lengths = attention_operands(q, q, q, mask, bias, lengths)
        return q, k, v, key_scales, value_scales, mask, bias, lengths

    def infer(
        self,
        q: TensorType,
        k: TensorType,
        v: TensorType,
        key_scales: TensorType,
        value_scales: TensorType,
        mask: TensorType | None = None,
        bias: TensorType | None = None,
        lengths: TensorType | None = None,
    ) -> TensorType:
        expect_dtype("q", q, (f32, f64))
        expect_dtype("k", k, (i8,))
        expect_dtype("v", v, (i8,))
        keys, values = (codes.with_dtype(q.dtype) for codes in (k, v))
        y = Attention(**self.attributes()).infer(q, keys, values, mask, bias, lengths)
        for name, codes, scales in (("key_scales", keys, key_scales), ("value_scales", values, value_scales)):
            expect_dtype(name, scales, (q.dtype,))
            expect_shape(name, scales, scales_shape(codes, self.layout, self.kv_heads))
        return y

    def decompose(
        self,
        q: Value,
        k: Value,
        v: Value,
        key_scales: Value,
        value_scales: Value,
        mask: Value | None = None,
        bias: Value | None = None,
        lengths: Value | None = None,
    ) -> Value:
        keys, values = (self._decoded(*each) for each in ((k, key_scales), (v, value_scales)))
        return attention(q, keys, values, mask, bias, lengths, **self.attributes())

    def _decoded(self, codes: Value, scales: Value) -> Value:
        shape = codes.shape
        if self.layout == "bsd":
            codes = reshaped(
                codes, (*shape[:-1], self.kv_heads, heads_shape("x", codes.type, "bsd", self.kv_heads, None)[3])
            )
        return reshaped(as_dtype(codes, scales.dtype) * scales[..., None], shape)

    def cost(self, q: TensorType, k: TensorType, v: TensorType, *others: TensorType | None) -> Dim:
        return self.cost_of(q, k, v)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        common: dict[str, Any] = {"num_heads": 2, "head_dim": 2}
        codes: dict[str, Any] = {"k": (-127.0, 127.0), "v": (-127.0, 127.0), "key_scales": (0.001, 0.01)}
        ranged: dict[str, Any] = {**common, "ranges": codes}
        valid: dict[str, Any] = {**common, "ranges": {**codes, "lengths": (-1, 6)}}
        keys, scales = ["i8[2, 5, 4]"] * 2, ["f32[2, 5, 2]"] * 2
        yield Sample("f32[2, 3, 4]", *keys, *scales, **ranged)
        yield Sample("f64[2, 3, 4]", *keys, *["f64[2, 5, 2]"] * 2, None, None, "i64[2]", **valid, mask_kind="causal")
        yield Sample("f32[3, 4]", "i8[5, 4]", "i8[5, 6]", "f32[5, 2]", "f32[5, 2]", **ranged)
        yield Sample("f32[2, 3, 4]", *keys, *scales, None, None, "i64[2]", **valid, mask_kind="causal")
        yield Sample(
            "f32[2, 1, 4]", *keys, *scales, "bool[2, 1, 1, 5]", "f32[2, 1, 5]", "i64[]", **valid, mask_kind="causal"
        )
        yield Sample("f32[2, 3, 8]", "i8[2, 5, 4]", "i8[2, 5, 6]", *scales, None, None, "i64[2]", num_heads=4, num_kv_heads=2,
                     head_dim=2, mask_kind="sliding_window", window=1, attn_logit_softcap=0.7,
                     ranges=valid["ranges"])  # fmt: skip
        for layout, shape in (("bshd", "[2, 3, 4]"), ("bhsd", "[2, 3, 4]")):
            heads = 4 if layout == "bshd" else 3
            yield Sample("f32[2, 3, 4, 2]", *["i8[2, 3, 4, 2]"] * 2, *[f"f32{shape}"] * 2, num_heads=heads, head_dim=2,
                         layout=layout, mask_kind="causal", ranges=codes)  # fmt: skip
        yield Sample("f32[2, 3, 4]", *keys, *scales, "bool[2, 5]", **ranged, mask_kind="custom", empty_row="uniform")
        yield Sample("f32[1, 2, 4]", "i8[1, 0, 4]", "i8[1, 0, 4]", "f32[1, 0, 2]", "f32[1, 0, 2]", **ranged)
        yield Rejected("f32[2, 3, 4]", *["f32[2, 5, 4]"] * 2, *scales, **common, error=DtypeError, says="k must be")
        yield Rejected("f16[2, 3, 4]", *keys, *scales, **common, error=DtypeError, says="q must be")
        yield Rejected(
            "f32[2, 3, 4]", *keys, scales[0], "i8[2, 5, 2]", **common, error=DtypeError, says="value_scales must be"
        )
        yield Rejected(
            "f32[2, 3, 4]", *keys, scales[0], "f32[2, 2, 5]", **common, error=ShapeError, says="value_scales must be"
        )


def scales_shape(codes: TensorType, layout: AttentionLayout, heads: int) -> Shape:
    """Return the dims of the scales of keys or values: one for each position and head."""
    return (*codes.shape[:-1], heads) if layout == "bsd" else codes.shape[:-1]


quantized_attention = op_function(QuantizedAttention)
