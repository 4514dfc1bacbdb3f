"""Operations of `com.microsoft` that exporters and optimisers of graphs write: several of ONNX's in one."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.ir.dims import Dim, smaller
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.handlers.attention import by_heads, joined_heads
from rlx_onnx.handlers.convolution import convolved
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles, rows
from rlx_onnx.walking.values import traced

MICROSOFT = "com.microsoft"

ACTIVATIONS: dict[str, Any] = {
    "": lambda x, p: x,
    "Relu": lambda x, p: rlx.relu(x),
    "Tanh": lambda x, p: rlx.tanh(x),
    "Sigmoid": lambda x, p: rlx.sigmoid(x),
    "LeakyRelu": lambda x, p: rlx.leaky_relu(x, p[0]),
    "Clip": lambda x, p: rlx.clip(x, p[0], p[1]),
    "HardSigmoid": lambda x, p: rlx.clip(p[0] * x + p[1], 0, 1),
}


def _activated(node: OnnxNode, x: Any, parameters: Any = ()) -> Any:
    return ACTIVATIONS[node.choice("activation", "", *ACTIVATIONS)](x, parameters)


rows(
    {
        "Gelu": lambda node, x: rlx.gelu(x),
        "BiasGelu": lambda node, x, b: rlx.gelu(x + b),
        "FastGelu": lambda node, x, b=None: rlx.gelu_approx(x if b is None else x + b),
        "QuickGelu": lambda node, x: x * rlx.sigmoid(node.get("alpha", 1.702) * x),
    },
    domain=MICROSOFT,
)


@handles("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(node: OnnxNode, a: Any, b: Any) -> Any:
    """alpha · a · b, either transposed in its last axes, or with the first axis moved before the last."""
    a = rlx.moveaxis(a, 0, -2) if node.get("transBatchA", 0) else a
    b = rlx.moveaxis(b, 0, -2) if node.get("transBatchB", 0) else b
    a = rlx.matrix_transpose(a) if node.get("transA", 0) and a.ndim > 1 else a
    b = rlx.matrix_transpose(b) if node.get("transB", 0) and b.ndim > 1 else b
    alpha = node.get("alpha", 1.0)
    return rlx.matmul(a, b) if alpha == 1.0 else rlx.matmul(a, b) * alpha


@handles("FusedGemm", domain=MICROSOFT)
def fused_gemm(node: OnnxNode, a: Any, b: Any, c: Any = None) -> Any:
    a = rlx.matrix_transpose(a) if node.get("transA", 0) else a
    b = rlx.matrix_transpose(b) if node.get("transB", 0) else b
    result = rlx.matmul(a, b) * node.get("alpha", 1.0)
    result = result if c is None else result + c * node.get("beta", 1.0)
    return _activated(node, result, (node.get("activation_alpha", 0.01), node.get("activation_beta", 0.0)))


@handles("FusedConv", domain=MICROSOFT)
def fused_conv(node: OnnxNode, x: Any, w: Any, b: Any = None, z: Any = None) -> Any:
    result = convolved(node, x, w, b)
    return _activated(node, result if z is None else result + z, node.get("activation_params", ()))


# ------------------------------------------------------------------------------------------ norms


@handles("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(node: OnnxNode, x: Any, skip: Any, gamma: Any, beta: Any = None, bias: Any = None) -> Any:
    total = x + skip if bias is None else x + skip + bias
    zero = rlx.zeros(gamma.shape, dtype=dtype_of(gamma.dtype)) if beta is None else beta
    return _with_sum(node, rlx.layer_norm(total, gamma, zero, eps=node.get("epsilon", 1e-5)), total)


@handles("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(node: OnnxNode, x: Any, skip: Any, gamma: Any, bias: Any = None) -> Any:
    total = x + skip if bias is None else x + skip + bias
    return _with_sum(node, _rms(total, gamma, node.get("epsilon", 1e-5)), total)


@handles("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_norm(node: OnnxNode, x: Any, gamma: Any) -> Any:
    if node.get("axis", -1) % x.ndim != x.ndim - 1:
        node.refuse("another axis than the last", "the last axis")
    return _rms(x, gamma, node.get("epsilon", 1e-5))


def _rms(x: Any, gamma: Any, eps: float) -> Any:
    return rlx.rms_norm(x, gamma, rlx.zeros(gamma.shape, dtype=dtype_of(gamma.dtype)), eps=eps)


def _with_sum(node: OnnxNode, y: Any, total: Any) -> Any:
    """Return the norm, and its operand's sum if requested; statistics are not supported."""
    if node.wants(1) or node.wants(2):
        node.refuse("the mean and the deviation as results", "the norm and the sum")
    return (y, None, None, total) if node.wants(3) else y


@handles("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(
    node: OnnxNode,
    ids: Any,
    segments: Any,
    words: Any,
    places: Any,
    kinds: Any = None,
    gamma: Any = None,
    beta: Any = None,
    mask: Any = None,
    numbers: Any = None,
) -> Any:
    """The sum of embeddings of words, places and segments, normalised."""
    if node.wants(1) and mask is not None:
        node.refuse("the lengths that a mask comes to", "the mask itself")
    position_ids = rlx.arange(ids.shape[1]) if numbers is None else numbers
    total = rlx.take(words, ids, axis=0) + rlx.take(places, position_ids, axis=0)
    if segments is not None and kinds is not None:
        total = total + rlx.take(kinds, segments, axis=0)
    y = rlx.layer_norm(total, gamma, beta, eps=node.get("epsilon", 1e-12))
    return (y, rlx.zeros((ids.shape[0],), dtype=rlx.i32), total)[: max(node.count, 1)]


# ------------------------------------------------------------------------------------------ attention


@handles("RotaryEmbedding", domain=MICROSOFT)
def rotary(node: OnnxNode, x: Any, places: Any, cos: Any, sin: Any) -> Any:
    """Rotate pairs of features by angles of their positions: halves of a head, or neighbours if `interleaved`."""
    is_flat = x.ndim == 3
    heads = node.get("num_heads", 0) or (x.shape[2] // (2 * cos.shape[1]) if is_flat else 0)
    data = by_heads(x, heads) if is_flat else x
    width = node.get("rotary_embedding_dim", 0) or data.shape[-1]
    if places.ndim == 1:
        places = rlx.reshape(rlx.arange(data.shape[2]), (1, -1)) + places
    result = turned_by(data, places, cos, sin, width, in_pairs=bool(node.get("interleaved", 0)))
    return joined_heads(result) if is_flat else result


def turned_by(data: Any, places: Any, cos: Any, sin: Any, width: Any, *, in_pairs: bool) -> Any:
    """Return heads `[batch, heads, time, n]` whose first features are rotated by the angles of positions `[batch, time]`."""
    c, s = (rlx.expand_dims(rlx.take(each, places, axis=0)[..., : width // 2], axis=1) for each in (cos, sin))
    transposed, remaining = data[..., :width], data[..., width:]
    if in_pairs:
        pairs = rlx.reshape(transposed, (*transposed.shape[:-1], width // 2, 2))
        a, b = pairs[..., 0], pairs[..., 1]
        result = rlx.reshape(rlx.stack([a * c - b * s, b * c + a * s], axis=-1), transposed.shape)
    else:
        a, b = transposed[..., : width // 2], transposed[..., width // 2 :]
        result = rlx.concat([a * c - b * s, b * c + a * s], axis=-1)
    return rlx.concat([result, remaining], axis=-1) if width != data.shape[-1] else result


def _attended(node: OnnxNode, q: Any, k: Any, v: Any, padding: Any, bias: Any) -> Any:
    """Attention over heads `[batch, heads, time, n]`; keys whose padding mask is 0 are masked."""
    mask = None
    if padding is not None:
        if padding.ndim != 2:
            node.refuse(f"a padding mask of {padding.ndim} axes", "one of [batch, keys]")
        mask = rlx.reshape(padding != 0, (padding.shape[0], 1, 1, padding.shape[1]))
    if node.get("unidirectional", 0):
        keys, places = rlx.arange(k.shape[2]), rlx.expand_dims(rlx.arange(q.shape[2]), axis=1)
        seen = rlx.reshape(keys <= places + (k.shape[2] - q.shape[2]), (1, 1, q.shape[2], k.shape[2]))
        mask = seen if mask is None else rlx.logical_and(mask, seen)
    scale = node.get("scale", 0.0) or None
    y = rlx.attention(q, k, v, mask=mask, bias=bias, layout="bhsd", scale=scale)
    return joined_heads(y)


@handles("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    node: OnnxNode,
    q: Any,
    k: Any = None,
    v: Any = None,
    b: Any = None,
    padding: Any = None,
    bias: Any = None,
    past_k: Any = None,
    past_v: Any = None,
) -> Any:
    heads = node.get("num_heads")
    if k is None or v is None or q.ndim != 3:
        node.refuse("queries, keys and values in one tensor", "three of [batch, time, features]")
    if b is not None:
        n, m = q.shape[2], k.shape[-1] if k.ndim == 3 else q.shape[2]
        q, k, v = q + b[:n], k + b[n : n + m] if k.ndim == 3 else k, v + b[n + m :] if v.ndim == 3 else v
    k, v = (by_heads(each, heads) if each.ndim == 3 else each for each in (k, v))
    if past_k is not None:
        k, v = rlx.concat([past_k, k], axis=2), rlx.concat([past_v, v], axis=2)
    y = _attended(node, by_heads(q, heads), k, v, padding, bias)
    return (y, k, v)[: max(node.count, 1)]


@handles("Attention", domain=MICROSOFT)
def packed_attention(
    node: OnnxNode, x: Any, w: Any, b: Any = None, padding: Any = None, past: Any = None, bias: Any = None
) -> Any:
    """Attention whose queries, keys and values are one product."""
    heads, size = node.get("num_heads"), w.shape[1] // 3
    if past is not None or len(set(node.get("qkv_hidden_sizes", [size]))) > 1:
        node.refuse("a past, or queries and values of other widths", "MultiHeadAttention")
    packed = rlx.matmul(x, w) if b is None else rlx.matmul(x, w) + b
    q, k, v = (by_heads(packed[:, :, i * size : (i + 1) * size], heads) for i in range(3))
    return _attended(node, q, k, v, padding, bias)


@handles("MatMulNBits", domain=MICROSOFT)
def matmul_of_bits(
    node: OnnxNode, x: Any, codes: Any, scales: Any, zeros: Any = None, groups: Any = None, bias: Any = None
) -> Any:
    """x times a weight of 4 or 8 bits a number, in blocks with a scale and a zero point each."""
    if groups is not None:
        node.refuse("blocks in another order than that of the columns", "no g_idx")
    bits, block, n, k = (node.get(name) for name in ("bits", "block_size", "N", "K"))
    if bits not in (4, 8) or (zeros is not None and not dtype_of(zeros.dtype).is_integer):
        node.refuse(f"weights of {bits} bits, or zero points that are floats", "4 or 8 bits")
    blocks = -(-k // block)
    numbers = _unpacked(rlx.reshape(codes, (n, blocks, -1)), bits)[..., :block]
    middle = np.float32(1 << bits - 1)
    if zeros is not None:
        middle = _unpacked(rlx.reshape(zeros, (n, -1)), bits)[:, :blocks, None]
    weight = (numbers - middle) * rlx.reshape(rlx.astype(scales, rlx.f32), (n, blocks, 1))
    weight = rlx.reshape(weight, (n, blocks * block))[:, :k]
    result = rlx.matmul(x, rlx.astype(rlx.matrix_transpose(weight), dtype_of(x.dtype)))
    return result if bias is None else result + bias


def _unpacked(codes: Any, bits: int) -> Any:
    """Numbers of which two lie in a byte, the lower first; of 8 bits, the bytes."""
    if bits == 8:
        return rlx.astype(codes, rlx.f32)
    # Shifts by an array, and not two arrays stacked: products compute such weights where they read them.
    pair = rlx.bitwise_and(rlx.bitwise_right_shift(codes[..., None], np.array([0, 4], np.uint8)), np.uint8(15))
    return rlx.astype(rlx.reshape(pair, (*codes.shape[:-1], -1)), rlx.f32)


# ------------------------------------------------------------------------------ attention with a cache


@handles("GroupQueryAttention", domain=MICROSOFT, takes_sizes=True)
def group_query_attention(
    node: OnnxNode,
    q: Any,
    k: Any = None,
    v: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    ends: Any = None,
    total: Any = None,
    cos: Any = None,
    sin: Any = None,
    places: Any = None,
    bias: Any = None,
    sink: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
) -> Any:
    """Each query sees the keys up to its own place; new keys and values are written behind those of their sequence.

    `ends` are the places of the last key of each sequence, so that sequences may have pasts of different lengths.
    """
    heads, shared = node.get("num_heads"), node.get("kv_num_heads")
    if sink is not None or k_scale is not None or v_scale is not None or node.get("smooth_softmax", 0):
        node.refuse("a sink of attention, or a cache of few bits", "caches of floats and a plain softmax")
    if node.wants(3):
        node.refuse("scores as a result", "the layer and its caches")
    if k is None:
        n = q.shape[2] // (heads + 2 * shared)
        q, k, v = (q[:, :, : heads * n], q[:, :, heads * n : (heads + shared) * n], q[:, :, (heads + shared) * n :])
    q, k, v = by_heads(q, heads), by_heads(k, shared), by_heads(v, shared)
    batch, _, length, n = q.shape
    # A prompt that is shorter than the longest one ends before the others: nothing lies before it either.
    before = rlx.maximum(rlx.reshape(rlx.astype(traced(ends), rlx.i64), (batch, 1)) + 1 - length, 0)
    steps = before + rlx.expand_dims(rlx.arange(length), axis=0)
    if node.get("do_rotary", 0):
        position_ids, pairs = steps if places is None else places, bool(node.get("rotary_interleaved", 0))
        q, k = (turned_by(each, position_ids, cos, sin, 2 * cos.shape[1], in_pairs=pairs) for each in (q, k))
    if past_k is not None:
        size = _room(past_k.shape[2], node.dims(6, "total_sequence_length")[0])
        k, v = (_written(old, new, steps, size) for old, new in ((past_k, k), (past_v, v)))
    keys = rlx.reshape(rlx.arange(k.shape[2]), (1, 1, k.shape[2]))
    seen = keys <= rlx.expand_dims(steps, axis=2)
    window = node.get("local_window_size", -1)
    if window >= 0:
        seen = rlx.logical_and(seen, rlx.expand_dims(steps, axis=2) - keys < window)
    y = rlx.attention(
        *(q, k, v),
        mask=rlx.expand_dims(seen, axis=1),
        bias=bias,
        layout="bhsd",
        scale=node.get("scale", 0.0) or None,
        softcap=node.get("softcap", 0.0) or None,
    )
    return (joined_heads(y), k, v)[: max(node.count, 1)]


def _room(past: Dim, total: Dim) -> Dim:
    """Return the number of keys of the updated cache: the present ones, or the total number if that is larger."""
    return past + total - smaller(past, total)


def _written(cache: Any, new: Any, steps: Any, size: Dim) -> Any:
    """Return a cache `[batch, heads, time, n]` of another size, with rows of each sequence at its own steps."""
    batch = new.shape[0]
    full = rlx.pad(cache, [(0, 0), (0, 0), (0, size - cache.shape[2]), (0, 0)])
    rows = rlx.broadcast_to(rlx.expand_dims(rlx.arange(batch), axis=1), steps.shape)
    places = rlx.stack([rows, rlx.astype(steps, rlx.i64)], axis=-1)
    result = rlx.scatter_nd(
        rlx.moveaxis(full, 2, 1), places, rlx.astype(rlx.moveaxis(new, 2, 1), dtype_of(cache.dtype))
    )
    return rlx.moveaxis(result, 1, 2)
