"""Attention with every mask, grouped heads, softcap and bias, and its cotangents as one op.

Per head: `u = s·q·kᵀ`, `w = c·tanh(u/c)` with a softcap c (else u), `z = w + bias`, hidden keys removed, `p = softmax(z)`,
`o = p·v`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from attrs import evolve

from rlx_core.errors import ConfigError, DtypeError, ShapeError, WrongInputCountError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Zero, define_op
from rlx_core.ir.types import TensorType, expect_shape
from rlx_core.ops.attention_masks import (
    aligned_shape,
    from_heads,
    heads_shape,
    length_visibility,
    mask_shape,
    operand_visibility,
    repeat_heads,
    to_heads,
)
from rlx_core.ops.attention_scores import AttentionOp, attention_operands
from rlx_core.ops.conversion import as_dtype
from rlx_core.ops.linalg import mat_mul, reshaped, swap_last
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.softmax import row_sum
from rlx_core.ops.statistics import wide
from rlx_core.ops.structural import expand, reshape, sum_axes, sum_to


@define_op
class Attention(AttentionOp):
    """Scaled dot-product attention.

    A query that sees no key returns 0 (`empty_row`), hidden keys have weight exactly 0, and no small weights are dropped. The
    result has the layout of q; values may have another number of features than queries and keys.

    Shapes:
        q: [b, s, h·d]    k: [b, t, kv·d]    v: [b, t, kv·e]    ->    y: [b, s, h·e]         (layout bsd; rank 2: b = 1)
        mask?: [b, t] or broadcastable to [b, h, s, t]    bias?: broadcastable to [b, h, s, t]    lengths?: i64[] or i64[b]

    Lengths are the numbers of valid keys, for each entry of the batch or for all: key j is visible only if j < length. Under
    the mask kinds `causal` and `sliding_window` queries are aligned at the end of the valid keys: key j is visible to query i
    iff j <= i + length - s, and within the window before that position. A length below 0 is 0, and one above t is t. Without a
    valid key `empty_row` applies. Lengths are read at run time: on CPUs loops over keys end there.

    Attributes:
        num_heads: Query heads.
        head_dim: Features of a query or key head.
        num_kv_heads: Key and value heads, each serving `num_heads / num_kv_heads` consecutive query heads.
        layout: `bsd`, `bshd` or `bhsd`; never guessed from sizes.
        mask_kind: `none`; `causal`: key j is visible to query i iff j <= i + t - s; `sliding_window`: only a window before it;
            `custom`, `bias`: the operand is required. Operands apply under every kind.
        window: The length of a sliding window: `window + 1` keys are visible.
        score_scale: s; 1/√head_dim by default.
        attn_logit_softcap: c, applied before the bias; none by default.
        empty_row: `zero`, `uniform` (the mean over all keys) or `nan`.

    Raises:
        ShapeError: Heads, features, batch sizes or the dims of mask and bias do not fit.
        WrongInputCountError: The mask kind needs an operand that is absent.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, section 3.2.
    """

    category: ClassVar = "compute"

    def prepare(
        self,
        q: Value,
        k: Value,
        v: Value,
        mask: Value | None = None,
        bias: Value | None = None,
        lengths: Value | None = None,
    ) -> tuple[Value | None, ...]:
        return attention_operands(q, k, v, mask, bias, lengths)

    def infer(
        self,
        q: TensorType,
        k: TensorType,
        v: TensorType,
        mask: TensorType | None = None,
        bias: TensorType | None = None,
        lengths: TensorType | None = None,
    ) -> TensorType:
        batch, heads, queries, width = self.check(q, k, v, mask, bias, lengths)
        if self.layout == "bsd":
            return q.with_shape((*q.shape[:-1], heads * width))
        return q.with_shape((batch, queries, heads, width) if self.layout == "bshd" else (batch, heads, queries, width))

    def decompose(
        self,
        q: Value,
        k: Value,
        v: Value,
        mask: Value | None = None,
        bias: Value | None = None,
        lengths: Value | None = None,
    ) -> Value:
        times = self.num_heads // self.kv_heads
        q4 = wide(to_heads(q, self.layout, self.num_heads))
        k4, v4 = (repeat_heads(wide(to_heads(x, self.layout, self.kv_heads)), times) for x in (k, v))
        o = mat_mul(self.scores(q4, k4, mask, bias, lengths).weights, v4)
        return as_dtype(from_heads(o, self.layout, q.ndim), q.dtype)

    def vjp(
        self,
        g: Value,
        q: Value,
        k: Value,
        v: Value,
        mask: Value | None = None,
        bias: Value | None = None,
        lengths: Value | None = None,
        *,
        y: Value,
    ) -> tuple[Value | Zero, ...]:
        masked = self
        if lengths is not None:
            masked, mask = self.masked(q, k, mask, lengths)
        cotangents = attention_backward(q, k, v, g, mask, bias, **masked.attributes())
        return (*cotangents[:3], ZERO, cotangents[3] if bias is not None else ZERO, ZERO)

    def masked(self, q: Value, k: Value, mask: Value | None, lengths: Value) -> tuple[Attention, Value]:
        """Return the same attention without lengths, and the mask for it: bool[b or 1, h or 1, s or 1, t]."""
        queries, keys = (heads_shape("x", x.type, self.layout, n, None)[2] for x, n in
                         ((q, self.num_heads), (k, self.kv_heads)))  # fmt: skip
        visible = length_visibility(lengths, self.mask_kind, self.window, queries, keys)
        if mask is not None:
            visible = where(visible, operand_visibility(mask), False)
        return evolve(self, mask_kind="custom", window=None), visible

    def batch(self, size: Dim, x: Sequence[Any], is_batched: Sequence[bool]) -> Value:
        if x[0].ndim - is_batched[0] == 2:
            # A sequence without a batch axis gets one of size 1, which the new axis is then folded into.
            x = [*(split_leading(v, b) for v, b in zip(x[:3], is_batched[:3], strict=True)), *x[3:]]
            y = self.batch(size, x, is_batched)
            return reshape(y, (size, *y.shape[2:]))
        own_batch = x[0].shape[1 if is_batched[0] else 0]
        qkv = [fold(v if b else expand(v, (size, *v.shape))) for v, b in zip(x[:3], is_batched[:3], strict=True)]
        extras = [
            v if v is None else fold_scores_operand(v, b, size, own_batch, is_mask=i == 0)
            for i, (v, b) in enumerate(zip(x[3:5], is_batched[3:5], strict=True))
        ]
        if len(x) > 5 and x[5] is not None:
            extras.append(fold_lengths(x[5], is_batched[5], size, own_batch))
        y = self(*qkv, *extras)
        return reshape(y, (size, own_batch, *y.shape[1:]))

    def cost(self, q: TensorType, k: TensorType, v: TensorType, *optional: TensorType | None) -> Dim:
        return self.cost_of(q, k, v)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from attention_samples()
        yield from length_samples()
        yield Rejected("f32[1, 3, 4]", "f32[1, 3, 4]", "f32[1, 3, 4]", None, None, "i64[2]", num_heads=2, head_dim=2,
                       error=ShapeError, says="lengths must be [] or [1]")  # fmt: skip
        yield Rejected("f32[1, 3, 4]", "f32[1, 3, 4]", "f32[1, 3, 4]", None, None, "f32[]", num_heads=2, head_dim=2,
                       error=DtypeError, says="lengths")  # fmt: skip
        yield Rejected(
            *["f32[1, 3, 4]"] * 3, num_heads=0, head_dim=2, error=ConfigError, says="num_heads must be an integer"
        )
        yield Rejected(*["f32[1, 3, 4]"] * 3, num_heads=2, head_dim=2, layout="sbd", error=ConfigError, says="'bsd'")
        yield Rejected("f32[1, 3, 6]", "f32[1, 3, 6]", "f32[1, 3, 6]", num_heads=4, head_dim=2, error=ShapeError,
                       says="6 features do not split into 4 heads")  # fmt: skip
        yield Rejected("f32[1, 3, 6]", "f32[1, 3, 6]", "f32[1, 3, 6]", num_heads=2, head_dim=2, error=ShapeError,
                       says="heads of 3 features, not 2")  # fmt: skip
        yield Rejected("f32[1, 3, 6]", "f32[1, 3, 4]", "f32[1, 3, 4]", num_heads=3, num_kv_heads=2, head_dim=2,
                       error=ShapeError, says="does not divide")  # fmt: skip
        yield Rejected("f32[1, 3, 4]", "f32[1, 3, 4]", "f32[1, 2, 4]", num_heads=2, head_dim=2, error=ShapeError,
                       says="3 keys and v has 2")  # fmt: skip
        yield Rejected("f32[1, 3, 4]", "f32[1, 3, 4]", "f32[1, 3, 4]", num_heads=2, head_dim=2, mask_kind="custom",
                       error=WrongInputCountError, says="needs the operand mask")  # fmt: skip
        yield Rejected("f32[1, 3, 4]", "f32[1, 3, 4]", "f32[1, 3, 4]", "bool[2, 3]", num_heads=2, head_dim=2,
                       error=ShapeError, says="does not broadcast to the scores")  # fmt: skip
        yield Rejected("f32[1, 3, 4]", "f32[1, 3, 4]", "f32[1, 3, 4]", num_heads=2, head_dim=2, window=1,
                       error=ShapeError, says="each needs the other")  # fmt: skip
        yield Rejected("i32[1, 3, 4]", "i32[1, 3, 4]", "i32[1, 3, 4]", num_heads=2, head_dim=2, error=DtypeError,
                       says="float")  # fmt: skip


attention = op_function(Attention)


def split_leading(x: Value, is_batched: bool) -> Value:
    """Return `[s, d]` as `[1, s, d]`, after the new axis if there is one."""
    return reshape(x, (x.shape[0], 1, *x.shape[1:]) if is_batched else (1, *x.shape))


def fold(x: Value) -> Value:
    """Return `x` with its first two axes merged."""
    return reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))


def fold_scores_operand(x: Value, is_batched: bool, size: Dim, own_batch: Dim, *, is_mask: bool) -> Value:
    """Return a mask or bias for a batch axis with the new axis folded in; one that is the same for every entry stays shared."""
    unbatched = x.type.with_shape(x.shape[1:]) if is_batched else x.type
    shape = mask_shape(unbatched) if is_mask else aligned_shape(unbatched)
    if not is_batched and shape[0] == 1:
        return reshaped(x, shape)
    placed = reshaped(x, (size, *shape)) if is_batched else reshaped(x, (1, *shape))
    return fold(expand(placed, (size, own_batch, *shape[1:])))


def fold_lengths(lengths: Value, is_batched: bool, size: Dim, own_batch: Dim) -> Value:
    """Return lengths for a batch axis with the new axis folded in; one for every entry stays a scalar."""
    if not is_batched and lengths.ndim == 0:
        return lengths
    shape = (size if is_batched else 1, own_batch if lengths.ndim - is_batched else 1)
    return fold(expand(reshaped(lengths, shape), (size, own_batch)))


@define_op
class AttentionBackward(AttentionOp):
    """The cotangents of `Attention`'s operands from that of its result, together: dq, dk, dv, and dbias if there is a bias.

    `dv = pᵀ·do`, `dp = do·vᵀ`, `dw = p·(dp - Σ p·dp)`, `dbias = dw` summed to its dims, `du = dw·(1 - (w/c)²)`,
    `dq = s·du·k`, `dk = s·duᵀ·q`; with grouped heads dk and dv are summed over each group.
    """

    category: ClassVar = "compute"
    mask_operand: ClassVar = 4

    def prepare(
        self, q: Value, k: Value, v: Value, dy: Value, mask: Value | None = None, bias: Value | None = None
    ) -> tuple[Value | None, ...]:
        q, k, v, mask, bias, _ = attention_operands(q, k, v, mask, bias)  # type: ignore[assignment]
        return q, k, v, as_dtype(dy, q.dtype), mask, bias

    def infer(
        self,
        q: TensorType,
        k: TensorType,
        v: TensorType,
        dy: TensorType,
        mask: TensorType | None = None,
        bias: TensorType | None = None,
    ) -> tuple[TensorType, ...]:
        result = Attention(**self.attributes()).infer(q, k, v, mask, bias)
        expect_shape("dy", dy, result.shape)
        return (q, k, v) if bias is None else (q, k, v, bias)

    def decompose(
        self, q: Value, k: Value, v: Value, dy: Value, mask: Value | None = None, bias: Value | None = None
    ) -> tuple[Value, ...]:
        times = self.num_heads // self.kv_heads
        q4, do = (wide(to_heads(x, self.layout, self.num_heads)) for x in (q, dy))
        k4, v4 = (repeat_heads(wide(to_heads(x, self.layout, self.kv_heads)), times) for x in (k, v))
        scores = self.scores(q4, k4, mask, bias)
        p = scores.weights
        dp = mat_mul(do, swap_last(v4))
        dw = p * (dp - row_sum(p * dp, 3))
        if scores.is_empty is not None:
            # The weights of an empty row are constants, independent of the scores.
            dw = where(scores.is_empty, 0, dw)
        du = dw * self.scale if scores.slope is None else dw * scores.slope * self.scale
        dk, dv = (self._to_kv(d, x) for d, x in ((mat_mul(swap_last(du), q4), k), (mat_mul(swap_last(p), do), v)))
        dq = as_dtype(from_heads(mat_mul(du, k4), self.layout, q.ndim), q.dtype)
        if bias is None:
            return dq, dk, dv
        dbias = reshaped(sum_to(dw, aligned_shape(bias.type)), bias.shape)
        return dq, dk, dv, as_dtype(dbias, bias.dtype)

    def cost(self, q: TensorType, k: TensorType, v: TensorType, *optional: TensorType | None) -> Dim:
        return 3 * self.cost_of(q, k, v)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for sample in attention_samples():
            types: list[Any] = list(sample.types)
            y = Attention(**sample.attributes).infer(*types)
            settings = {"ranges": sample.ranges, "is_smooth": sample.is_smooth, **sample.attributes}
            yield Sample(*types[:3], y, *types[3:], **settings)
        yield Rejected("f32[1, 3, 4]", "f32[1, 3, 4]", "f32[1, 3, 4]", "f32[1, 3, 3]", num_heads=2, head_dim=2,
                       error=ShapeError, says="dy must be [1, 3, 4]")  # fmt: skip

    def _to_kv(self, d: Value, x: Value) -> Value:
        """Return a cotangent per query head summed to one per key head, in the layout and dtype of `x`."""
        batch, _, seq, features = d.shape
        times = self.num_heads // self.kv_heads
        if times > 1:
            d = sum_axes(reshape(d, (batch, self.kv_heads, times, seq, features)), axes=(2,))
        return as_dtype(from_heads(d, self.layout, x.ndim), x.dtype)


attention_backward = op_function(AttentionBackward)


def attention_samples() -> Iterator[Sample]:
    """Yield samples for both ops: dtypes, layouts, mask kinds, operands, grouped heads, scale and cap."""
    common: dict[str, Any] = {"num_heads": 2, "head_dim": 2}
    for d in FLOATS:
        yield Sample(f"{d}[2, 3, 4]", f"{d}[2, 3, 4]", f"{d}[2, 3, 4]", **common)
    yield Sample("f32[3, 4]", "f32[5, 4]", "f32[5, 6]", **common)
    for layout in ("bshd", "bhsd"):
        # Equal numbers of heads and positions: shape checks alone would not notice exchanged axes.
        yield Sample(*["f32[2, 3, 3, 2]"] * 3, num_heads=3, head_dim=2, layout=layout, mask_kind="causal")
    yield Sample("f64[1, 2, 4]", "f64[1, 5, 4]", "f64[1, 5, 4]", **common, mask_kind="causal")
    yield Sample("f64[1, 4, 4]", "f64[1, 2, 4]", "f64[1, 2, 4]", **common, mask_kind="causal")
    yield Sample("f64[1, 5, 4]", "f64[1, 5, 4]", "f64[1, 5, 4]", **common, mask_kind="sliding_window", window=1)
    yield Sample("f64[2, 3, 8]", "f64[2, 4, 4]", "f64[2, 4, 6]", num_heads=4, num_kv_heads=2, head_dim=2)
    yield Sample("f64[1, 3, 4]", "f64[1, 3, 4]", "f64[1, 3, 4]", **common, score_scale=0.3, attn_logit_softcap=0.7)
    yield Sample(*["f64[2, 3, 4]"] * 3, "bool[2, 3]", **common, mask_kind="custom")
    yield Sample(*["f64[2, 3, 4]"] * 3, "f64[2, 1, 3, 3]", **common, mask_kind="custom", ranges={"mask": (0.6, 1.0)})
    yield Sample(*["f64[2, 3, 4]"] * 3, None, "f64[1, 2, 3, 3]", **common, mask_kind="bias", attn_logit_softcap=2.0)
    yield Sample(*["f64[2, 3, 4]"] * 3, None, "f64[2, 1, 1]", **common, mask_kind="causal")
    yield Sample(*["bf16[1, 3, 4]"] * 3, "bool[1, 3]", "f32[2, 3, 3]", **common, mask_kind="causal")
    for empty_row in ("zero", "uniform"):
        yield Sample("f64[1, 4, 4]", "f64[1, 2, 4]", "f64[1, 2, 4]", "bool[1, 2]", **common, mask_kind="causal",
                     empty_row=empty_row)  # fmt: skip
    yield Sample("f32[1, 2, 4]", "f32[1, 0, 4]", "f32[1, 0, 4]", **common)


def length_samples() -> Iterator[Sample]:
    """Yield samples with lengths: below 0, within the keys and above them; for each entry or all; mask kinds and operands."""
    common: dict[str, Any] = {"num_heads": 2, "head_dim": 2, "ranges": {"lengths": (-1, 6)}}
    for d in FLOATS:
        yield Sample(*[f"{d}[4, 3, 4]"] + [f"{d}[4, 5, 4]"] * 2, None, None, "i64[4]", **common, mask_kind="causal")
    yield Sample("f32[3, 4]", "f32[5, 4]", "f32[5, 6]", None, None, "i64[]", **common)
    yield Sample("f64[4, 3, 8]", "f64[4, 5, 4]", "f64[4, 5, 6]", None, None, "i64[4]", num_heads=4, num_kv_heads=2,
                 head_dim=2, mask_kind="sliding_window", window=1, ranges={"lengths": (-1, 6)})  # fmt: skip
    yield Sample(*["f64[3, 2, 3, 2]"] * 3, "bool[3, 3]", "f64[2, 1, 3]", "i64[3]", num_heads=2, head_dim=2, layout="bhsd",
                 ranges={"lengths": (-1, 4)})  # fmt: skip
    yield Sample(*["f64[4, 3, 4]"] * 3, None, None, "i64[4]", **common, empty_row="uniform")
    yield Sample("f64[1, 2, 4]", "f64[1, 0, 4]", "f64[1, 0, 4]", None, None, "i64[]", **common)
