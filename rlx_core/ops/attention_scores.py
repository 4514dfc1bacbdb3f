"""Attention before the product with the values: checks, attributes and the attention weights.

The forward and the backward op are both built on `Scores`, so they cannot disagree about a mask, a scale or a cap.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
from attrs import field

from rlx_core.errors import ShapeError, WrongInputCountError
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import FLOATS, bool_, i64
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op
from rlx_core.ir.types import Shape, TensorType, broadcast_shapes, expect_dtype, same_dim
from rlx_core.ops.activation import tanh
from rlx_core.ops.attention_masks import (
    AttentionLayout,
    MaskKind,
    aligned_shape,
    heads_shape,
    length_visibility,
    mask_shape,
    operand_visibility,
    positional_visibility,
)
from rlx_core.ops.conversion import as_dtype
from rlx_core.ops.kinds import promoted
from rlx_core.ops.linalg import mat_mul, reshaped, swap_last
from rlx_core.ops.selection import where
from rlx_core.ops.softmax import row_max, softmax
from rlx_core.ops.statistics import wide
from rlx_core.ops.validators import number, whole
from rlx_core.system.records import frozen

EmptyRow = Literal["zero", "uniform", "nan"]


@frozen(eq=False)
class Scores:
    """The results that both passes compute first.

    Attributes:
        weights: p, `[batch, heads, queries, keys]`, wide.
        slope: `∂w/∂u` of the softcap, or `None` without one.
        is_empty: Queries that see no key, if needed; `[batch, heads, queries, 1]`.
    """

    weights: Value
    slope: Value | None
    is_empty: Value | None


@frozen(slots=False)
class AttentionOp(Op):
    """Base of attention and its backward op: attributes, checks, and the attention weights.

    Attributes:
        mask_operand: The number of the operand that is the mask; bias and lengths follow it.
    """

    mask_operand: ClassVar[int] = 3
    num_heads: int = field(validator=whole(1))
    head_dim: int = field(validator=whole(1))
    num_kv_heads: int | None = field(default=None, validator=whole(1, optional=True))
    layout: AttentionLayout = "bsd"
    mask_kind: MaskKind = "none"
    window: int | None = field(default=None, validator=whole(0, optional=True))
    score_scale: float | None = None
    attn_logit_softcap: float | None = field(default=None, validator=number(0, is_open=True, optional=True))
    empty_row: EmptyRow = "zero"

    @property
    def kv_heads(self) -> int:
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.head_dim) if self.score_scale is None else self.score_scale

    def check(
        self,
        q: TensorType,
        k: TensorType,
        v: TensorType,
        mask: TensorType | None,
        bias: TensorType | None,
        lengths: TensorType | None = None,
    ) -> Shape:
        """Return the dims `[batch, heads, queries, value features]` of the result, after every check."""
        self._check_attributes(mask, bias)
        expect_dtype("q", q, FLOATS, "float")
        for name, x in (("k", k), ("v", v)):
            expect_dtype(name, x, (q.dtype,))
            if x.rank != q.rank:
                raise ShapeError(f"{name} has {x.rank} axes and q has {q.rank}")
        batch, heads, queries, _ = heads_shape("q", q, self.layout, self.num_heads, self.head_dim)
        k_batch, _, keys, _ = heads_shape("k", k, self.layout, self.kv_heads, self.head_dim)
        v_batch, _, v_keys, width = heads_shape("v", v, self.layout, self.kv_heads, None)
        if not same_dim(keys, v_keys):
            raise ShapeError(f"k has {keys} keys and v has {v_keys}")
        if not (same_dim(batch, k_batch) and same_dim(batch, v_batch)):
            raise ShapeError(f"batch sizes differ: q {batch}, k {k_batch}, v {v_batch}")
        scores = (batch, heads, queries, keys)
        if mask is not None:
            expect_dtype("mask", mask, (bool_, *FLOATS), "bool or float")
            expect_broadcast("mask", mask, mask_shape(mask), scores)
        if bias is not None:
            expect_dtype("bias", bias, (q.dtype, q.dtype.accumulator))
            expect_broadcast("bias", bias, aligned_shape(bias), scores)
        if lengths is not None:
            expect_dtype("lengths", lengths, (i64,))
            if lengths.rank > 1 or (lengths.rank == 1 and not same_dim(lengths.shape[0], batch)):
                raise ShapeError(f"lengths must be [] or [{batch}], not {list(lengths.shape)}")
        return batch, heads, queries, width

    def _check_attributes(self, mask: TensorType | None, bias: TensorType | None) -> None:
        if self.num_heads % self.kv_heads:
            raise ShapeError(f"num_kv_heads {self.kv_heads} does not divide num_heads {self.num_heads}")
        if (self.window is not None) != (self.mask_kind == "sliding_window"):
            raise ShapeError(f"window {self.window} with mask_kind {self.mask_kind!r}: each needs the other")
        for kind, operand in (("custom", mask), ("bias", bias)):
            if self.mask_kind == kind and operand is None:
                raise WrongInputCountError(
                    f"mask_kind {kind!r} needs the operand {'mask' if kind == 'custom' else 'bias'}"
                )

    def scores(
        self, q: Value, k: Value, mask: Value | None, bias: Value | None, lengths: Value | None = None
    ) -> Scores:
        """Return the attention weights of wide `q` and `k` in `[b, h, s, d]`, with equal numbers of heads."""
        z = mat_mul(q, swap_last(k)) * self.scale
        slope = None
        if self.attn_logit_softcap is not None:
            capped = tanh(z / self.attn_logit_softcap)
            z, slope = capped * self.attn_logit_softcap, 1 - capped * capped
        if bias is not None:
            z = z + reshaped(wide(bias), aligned_shape(bias.type))
        sizes = q.shape[2], k.shape[2]
        if lengths is None:
            positional = positional_visibility(self.mask_kind, self.window, *sizes)
        else:
            positional = length_visibility(lengths, self.mask_kind, self.window, *sizes)
        shown = [positional] if positional is not None else []
        if mask is not None:
            shown.append(operand_visibility(mask))
        for visible in shown:
            z = where(visible, z, -np.inf)
        is_hideable = bool(shown) or bias is not None
        if k.shape[2] == 0 or not is_hideable or self.empty_row == "nan":
            return Scores(softmax(z, axis=3), slope, None)
        if self.empty_row == "zero":
            return Scores(softmax(z, axis=3, empty_row="zero"), slope, None)
        is_empty = row_max(z, 3) == -np.inf
        return Scores(softmax(where(is_empty, 0, z), axis=3), slope, is_empty)

    def cost_of(self, q: TensorType, k: TensorType, v: TensorType) -> Dim:
        """Return the floating-point operations of the two products."""
        batch, heads, queries, features = heads_shape("q", q, self.layout, self.num_heads, None)
        _, _, keys, width = heads_shape("v", v, self.layout, self.kv_heads, None)
        return 2 * batch * heads * queries * keys * (features + width)


def expect_broadcast(name: str, actual: TensorType, shape: Shape, scores: Shape) -> None:
    """Require that an operand broadcasts to the scores without enlarging them."""
    if broadcast_shapes(shape, scores) != scores:
        raise ShapeError(f"{name} {actual} does not broadcast to the scores {list(scores)}")


def attention_operands(
    q: Value, k: Value, v: Value, mask: Value | None, bias: Value | None, lengths: Value | None = None
) -> tuple[Value | None, ...]:
    """Return operands of one dtype; a mask may be a number (visible where at least 0.5), a bias may be wide, lengths are i64."""
    q, k, v = promoted(q, k, v)  # type: ignore[assignment]
    if mask is not None and mask.dtype.is_integer:
        mask = as_dtype(mask, bool_)
    if bias is not None and bias.dtype not in (q.dtype, q.dtype.accumulator):
        bias = as_dtype(bias, q.dtype.accumulator)
    if lengths is not None and lengths.dtype.is_integer:
        lengths = as_dtype(lengths, i64)
    return q, k, v, mask, bias, lengths
