"""Attention, and the recurrences that stand in for it."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.reading.tensors import DTYPES
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles


def by_heads(x: Any, heads: int) -> Any:
    """`[batch, time, heads·n]` as `[batch, heads, time, n]`."""
    return rlx.moveaxis(rlx.reshape(x, (*x.shape[:2], heads, x.shape[2] // heads)), 1, 2)


def joined_heads(x: Any) -> Any:
    """`[batch, heads, time, n]` as `[batch, time, heads·n]`."""
    transposed = rlx.moveaxis(x, 1, 2)
    return rlx.reshape(transposed, (*transposed.shape[:2], transposed.shape[2] * transposed.shape[3]))


@handles("Attention")
def attention(
    node: OnnxNode,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    lengths: Any = None,
) -> Any:
    """Scaled dot-product attention with caches, masks, windows, a cap and groups of heads that share keys."""
    is_flat = q.ndim == 3
    if is_flat:
        heads, shared = node.get("q_num_heads"), node.get("kv_num_heads")
        if not heads or not shared:
            raise FormatError(f"{node}: operands of 3 axes need q_num_heads and kv_num_heads")
        q, k, v = by_heads(q, heads), by_heads(k, shared), by_heads(v, shared)
    before = 0 if past_k is None else past_k.shape[2]
    if past_k is not None:
        k, v = rlx.concat([past_k, k], axis=2), rlx.concat([past_v, v], axis=2)
    allowed, mask = _allowed(node, q, k, before, lengths), _padded(mask, k.shape[2])
    if not node.wants(3) and not node.element("softmax_precision"):
        y, scores = _fused(node, q, k, v, allowed, mask), None
    else:
        y, scores = _written_out(node, q, k, v, allowed, mask)
    y = joined_heads(y) if is_flat else y
    return (y, k, v, scores)[: max(node.count, 1)]


def _padded(mask: Any, keys: Any) -> Any:
    """A mask over all keys: those beyond its end are left out."""
    if mask is None or mask.shape[-1] == keys:
        return mask
    widths = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
    if dtype_of(mask.dtype).kind == "bool":
        return rlx.astype(rlx.pad(rlx.astype(mask, rlx.u8), widths), rlx.bool_)
    return rlx.pad(mask, widths, constant_values=-np.inf)


def _allowed(node: OnnxNode, q: Any, k: Any, before: Any, lengths: Any) -> Any:
    """Return the keys visible to a query: `[queries, keys]`, or `[batch, 1, queries, keys]` with lengths; `None` for all."""
    is_causal = bool(node.get("is_causal", 0))
    left, right = node.get("left_window_size", -1), node.get("right_window_size", -1)
    keys = rlx.expand_dims(rlx.arange(k.shape[2]), axis=0)
    places = rlx.expand_dims(rlx.arange(q.shape[2]), axis=1)
    if lengths is not None:
        counts = rlx.reshape(rlx.astype(lengths, rlx.i64), (-1, 1, 1, 1))
        places = places + (counts - q.shape[2])
    else:
        places = places + before
    seen = [keys <= places] if is_causal else []
    seen += [places - keys <= left] if left >= 0 else []
    seen += [keys - places <= right] if right >= 0 else []
    seen += [keys < counts] if lengths is not None else []
    result = None
    for each in seen:
        result = each if result is None else rlx.logical_and(result, each)
    return result


def _fused(node: OnnxNode, q: Any, k: Any, v: Any, allowed: Any, mask: Any) -> Any:
    """The layer as rlx's own, which never holds all scores at once."""
    bias = None if mask is None or dtype_of(mask.dtype).kind == "bool" else mask
    seen = [each for each in (allowed, mask if bias is None else None) if each is not None]
    seen = [rlx.reshape(each, (1,) * (4 - each.ndim) + tuple(each.shape)) for each in seen]
    bias = None if bias is None else rlx.reshape(bias, (1,) * (4 - bias.ndim) + tuple(bias.shape))
    return rlx.attention(
        *(q, k, v),
        mask=rlx.logical_and(*seen) if len(seen) == 2 else seen[0] if seen else None,
        bias=bias,
        layout="bhsd",
        scale=node.get("scale"),
        softcap=node.get("softcap", 0.0) or None,
    )


def _written_out(node: OnnxNode, q: Any, k: Any, v: Any, allowed: Any, mask: Any) -> tuple[Any, Any]:
    dtype = dtype_of(q.dtype)
    if q.shape[1] != k.shape[1]:
        k, v = (rlx.repeat(each, q.shape[1] // each.shape[1], axis=1) for each in (k, v))
    scale = node.get("scale") or 1 / float(np.sqrt(int(q.shape[-1])))
    root = np.asarray(np.sqrt(scale), dtype.numpy)
    raw = rlx.matmul(q * root, rlx.matrix_transpose(k) * root)
    cap = node.get("softcap", 0.0)
    capped = rlx.astype(cap * rlx.tanh(raw / cap), dtype) if cap else raw
    scores = capped
    low = np.asarray(-np.inf, dtype.numpy)
    if mask is not None:
        is_bool = dtype_of(mask.dtype).kind == "bool"
        scores = rlx.where(mask, scores, low) if is_bool else scores + mask
    if allowed is not None:
        scores = rlx.where(allowed, scores, low)
    precise = node.element("softmax_precision")
    wide = rlx.astype(scores, DTYPES[precise]) if precise in DTYPES else scores
    top = rlx.max(wide, axis=-1, keepdims=True)
    is_empty = top == -np.inf  # no key is seen: the row is 0
    parts = rlx.exp(wide - rlx.where(is_empty, rlx.zeros_like(top), top))
    full = rlx.sum(parts, axis=-1, keepdims=True)
    shares = rlx.astype(parts / rlx.where(is_empty, rlx.ones_like(full), full), dtype)
    shown = (raw, capped, scores, shares)[node.get("qk_matmul_output_mode", 0)]
    return rlx.matmul(shares, v), shown


@handles("LinearAttention")
def linear_attention(
    node: OnnxNode, q: Any, k: Any, v: Any, state: Any = None, decay: Any = None, beta: Any = None
) -> Any:
    """Linear attention: a state that decays by `exp(decay)` and is updated with `v` under `k`, or with the error; read by `q`.

    The operands select the update rule: with a decay, with a rate, with both or with neither.
    """
    heads, shared = node.get("q_num_heads"), node.get("kv_num_heads")
    dtype = dtype_of(q.dtype)
    n, m = q.shape[2] // heads, v.shape[2] // shared
    scale = node.get("scale") or 1 / float(np.sqrt(n))
    q4, k4, v4 = (
        rlx.moveaxis(rlx.astype(by_heads(x, h), rlx.f32), 2, 0) for x, h in ((q, heads), (k, shared), (v, shared))
    )
    xs: dict[str, Any] = {"q": q4, "k": k4, "v": v4}
    if decay is not None:
        xs["g"] = rlx.moveaxis(rlx.astype(by_heads(decay, shared), rlx.f32), 2, 0)
    if beta is not None:
        xs["b"] = rlx.moveaxis(rlx.astype(by_heads(beta, beta.shape[2]), rlx.f32), 2, 0)
    state_dtype = dtype if state is None else dtype_of(state.dtype)
    first = rlx.zeros((q.shape[0], shared, n, m), dtype=rlx.f32) if state is None else rlx.astype(state, rlx.f32)

    def step(s: Any, now: dict[str, Any]) -> Any:
        if "g" in now:
            s = s * rlx.expand_dims(rlx.exp(now["g"]), axis=-1)
        key, new = rlx.expand_dims(now["k"], axis=-1), now["v"]
        if "b" in now:
            new = now["b"] * (new - rlx.sum(s * key, axis=2))
        s = s + key * rlx.expand_dims(new, axis=2)
        memory = rlx.repeat(s, heads // shared, axis=1)
        return s, scale * rlx.sum(memory * rlx.expand_dims(now["q"], axis=-1), axis=2)

    last, rows = rlx.scan(step, first, xs)
    return rlx.astype(joined_heads(rlx.moveaxis(rows, 0, 2)), dtype), rlx.astype(last, state_dtype)


@handles("CausalConvWithState")
def causal_conv(node: OnnxNode, x: Any, w: Any, b: Any = None, past: Any = None) -> Any:
    """Each channel by a kernel over its past, of which the last cells are handed on."""
    size = w.shape[2]
    before = rlx.zeros((*x.shape[:2], size - 1), dtype=dtype_of(x.dtype)) if past is None else past
    full = rlx.concat([before, x], axis=2)
    dtype = dtype_of(x.dtype)
    wide, kernel = (rlx.astype(each, rlx.f32) if dtype.is_narrow else each for each in (full, w))
    y: Any = sum(wide[:, :, i : i + x.shape[2]] * kernel[:, 0, i : i + 1] for i in range(size))
    if b is not None:
        y = y + rlx.reshape(rlx.astype(b, dtype_of(y.dtype)), (-1, 1))
    if node.choice("activation", "none", "silu", "swish") != "none":
        y = rlx.silu(y)
    return rlx.astype(y, dtype), full[:, :, full.shape[2] - (size - 1) :]


@handles("SwiGLU")
def swiglu(node: OnnxNode, a: Any, b: Any) -> Any:
    alpha = node.get("alpha", 1.0)
    return (rlx.silu(a) if alpha == 1.0 else a * rlx.sigmoid(alpha * a)) * b


@handles("AffineGrid")
def affine_grid(node: OnnxNode, theta: Any, size: Any) -> Any:
    """Places of the cells of a picture, -1 .. 1, under an affine map."""
    sizes = [int(n) for n in node.ints(1, "size") or []][2:]
    node.counted(int(np.prod(sizes, dtype=object)), "number of cells")
    corners = bool(node.get("align_corners", 0))
    axes = []
    for n in sizes:
        steps = np.arange(n)
        axes.append((-1 + 2 * steps / max(n - 1, 1)) if corners else (2 * steps + 1) / n - 1)
    mesh = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*reversed(mesh), np.ones(sizes)], axis=-1).astype(dtype_of(theta.dtype).numpy)
    flat = points.reshape(-1, len(sizes) + 1)
    result = rlx.matmul(flat, rlx.matrix_transpose(theta))
    return rlx.reshape(result, (theta.shape[0], *sizes, len(sizes)))
