"""Products of matrices, of groups of rows too (mixtures of experts), and attention."""

from __future__ import annotations

import math
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_core.ir.dims import holds, product
from rlx_torch.aten.context import fresh_key, refuse
from rlx_torch.aten.elementwise import convert
from rlx_torch.aten.promotion import as_value
from rlx_torch.aten.table import aten, rows


def _scaled(x: Any, factor: Any) -> Any:
    return x if not isinstance(factor, rlx.Value) and factor == 1 else x * as_value(factor, x.dtype)


def _plus(beta: Any, bias: Any, alpha: Any, result: Any) -> Any:
    """Return `beta·bias + alpha·product`; with a beta of 0 the bias is not read."""
    result = _scaled(result, alpha)
    return result if beta == 0 else rlx.add(result, _scaled(bias, beta))


rows(
    {
        "mm bmm matmul mv dot": rlx.matmul,
        "vdot linalg_vecdot": lambda a, b, dim=-1: rlx.vecdot(a, b, axis=dim),
        "outer ger": rlx.outer,
        "addmm baddbmm addmv": lambda bias, a, b, beta=1, alpha=1: _plus(beta, bias, alpha, rlx.matmul(a, b)),
        "addbmm": lambda bias, a, b, beta=1, alpha=1: _plus(beta, bias, alpha, rlx.sum(rlx.matmul(a, b), axis=0)),
        "linear": lambda x, w, b=None: nn.linear(x, w.T, b),
        "einsum": lambda equation, tensors, *, path=None: rlx.einsum(equation, *tensors),
    }
)


@aten("bilinear")
def bilinear(a: Any, b: Any, weight: Any, bias: Any = None) -> Any:
    result = rlx.einsum("...i,oij,...j->...o", a, weight, b)
    return result if bias is None else result + bias


@aten("scaled_dot_product_attention")
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(q·kᵀ·scale + mask)·v over the last two axes; axes before them are batch and heads."""
    lead = query.shape[:-2]
    q, k, v = (_four_axes(each) for each in (query, key, value))
    mask = None if attn_mask is None else _lifted(attn_mask, len(lead))
    queries, keys = query.shape[-2], key.shape[-2]
    if is_causal and not holds("==", queries, keys):
        # Torch aligns the triangle with the first key, rlx with the last.
        mask = rlx.tril(rlx.ones((1, 1, queries, keys), dtype=rlx.bool_))
        is_causal = False
    if dropout_p:
        return rlx.reshape(_dropped(q, k, v, mask, dropout_p, is_causal, scale), (*lead, queries, value.shape[-1]))
    shown = {} if mask is None else {"mask" if mask.dtype == rlx.bool_ else "bias": mask}
    result = nn.attention(q, k, v, layout="bhsd", is_causal=is_causal, scale=scale, **shown)
    return rlx.reshape(result, (*lead, queries, value.shape[-1]))


def _four_axes(x: Any) -> Any:
    if x.ndim == 4:
        return x
    lead = x.shape[:-2]
    return rlx.reshape(x, (product(lead[:-1]), lead[-1] if lead else 1, *x.shape[-2:]))


def _lifted(mask: Any, lead: int) -> Any:
    """A mask for the four axes of the operands: rlx reads one of two axes as [batch, keys], torch as [queries, keys]."""
    wide = rlx.reshape(mask, (*[1] * (max(lead, 2) + 2 - mask.ndim), *mask.shape))
    return wide if lead <= 2 else rlx.reshape(wide, (product(wide.shape[: lead - 1]), *wide.shape[lead - 1 :]))


def _repeated(x: Any, heads: Any) -> Any:
    """Keys or values with as many heads as the queries have: each head of `x` is read by several (`enable_gqa`)."""
    initial = x.shape[-3]
    return x if holds("==", initial, heads) else rlx.repeat(x, heads // initial, axis=-3)


def _dropped(q: Any, k: Any, v: Any, mask: Any, rate: float, causal: bool, scale: float | None) -> Any:
    """With weights that are dropped at random, which the fused op has not."""
    k, v = (_repeated(each, q.shape[-3]) for each in (k, v))
    scores = rlx.matmul(q, rlx.matrix_transpose(k)) * as_value(scale or 1 / math.sqrt(q.shape[-1]), q.dtype)
    if causal:
        mask = rlx.tril(rlx.ones(scores.shape[-2:], dtype=rlx.bool_))
    if mask is not None:
        hidden = mask.dtype == rlx.bool_
        scores = rlx.where(mask, scores, as_value(-math.inf, scores.dtype)) if hidden else scores + mask
    return rlx.matmul(nn.dropout(rlx.softmax(scores, empty_row="zero"), fresh_key(), rate), v)


def _weights_sum(q: Any, k: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    """log Σ exp of each query's scores, which torch keeps for the backward pass."""
    k = _repeated(k, q.shape[-3])
    scores = rlx.matmul(q, rlx.matrix_transpose(k)) * as_value(scale or 1 / math.sqrt(q.shape[-1]), q.dtype)
    if causal:
        seen = rlx.tril(rlx.ones(scores.shape[-2:], dtype=rlx.bool_))
        scores = rlx.where(seen, scores, as_value(-math.inf, scores.dtype))
    scores = scores if mask is None else scores + mask
    return rlx.logsumexp(scores if q.dtype == rlx.f64 else convert(scores, rlx.f32), axis=-1)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    if dropout_p:
        refuse("scaled_dot_product_attention where its backward is not another op, which would drop other weights")
    result = attention(query, key, value, attn_mask, 0.0, is_causal, scale=scale)
    return result, _weights_sum(query, key, attn_mask, is_causal, scale)


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    g: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    def forward(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, attn_mask, 0.0, is_causal, scale=scale)

    return rlx.vjp(forward, query, key, value)[1](g)


# -------------------------------------------------------------------------- products of groups of rows


@aten("_grouped_mm")
def grouped_mm(x: Any, matrices: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """f[s, k] · f[groups, k, n] -> f[s, n], where `offs` are the ends of the groups in order."""
    if offs is None and x.ndim == matrices.ndim == 3:
        result = rlx.matmul(x, matrices)
    elif offs is not None and (x.ndim, matrices.ndim) == (2, 3):
        result = products_of_groups(x, matrices, offs)
    else:
        refuse("a product for each group: groups of rows times a matrix for each are the ones that are known")
    result = result if bias is None else result + bias
    return result if out_dtype is None else convert(result, out_dtype)


@aten("transformers::grouped_mm_fallback")
def products_of_groups(input: Any, weight: Any, offs: Any) -> Any:
    """Rows behind the last group are zeros."""
    group = rlx.searchsorted(offs, rlx.arange(input.shape[0], dtype=offs.dtype), side="right")
    groups = weight.shape[0]
    result = rlx.grouped_matmul(input, weight, rlx.minimum(group, groups - 1))
    return rlx.where((group < groups)[:, None], result, 0)


@aten("transformers::grouped_mm_fallback_backward")
def cotangents_of_groups(input: Any, weight: Any, offs: Any, grad_output: Any) -> list[Any]:
    _, pull = rlx.vjp(lambda x, w: products_of_groups(x, w, offs), input, weight)
    return list(pull(grad_output))
