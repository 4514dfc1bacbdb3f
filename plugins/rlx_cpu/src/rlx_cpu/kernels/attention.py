"""Attention one batch element at a time: the scores of its heads live in the workspace the plan gives."""

from __future__ import annotations

import numpy as np

from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Node
from rlx_core.ops.attention import Attention
from rlx_core.pipeline.kernels import condition
from rlx_cpu.kernels.normalization import softmax_rows
from rlx_cpu.kernels.table import FLOAT, kernels

MASK, LENGTHS = 3, 5
"""Operands whose dtypes are their own."""


@condition("queries without visible keys to give zeros")
def zeroes_empty_rows(node: Node) -> bool:
    return isinstance(node.op, Attention) and node.op.empty_row == "zero"


@condition("q, k, v (and a bias) of one dtype, and a mask of bool or that dtype")
def fitting_dtypes(node: Node) -> bool:
    return all(
        v.dtype is node.type.dtype for i, v in enumerate(node.operands) if v is not None and i not in (MASK, LENGTHS)
    )


def scores_nbytes(node: Node) -> Dim:
    """One score for each head, query and key of one batch element."""
    op, q, k = node.op, node.operands[0], node.operands[1]
    assert isinstance(op, Attention), "registered for attention alone"
    assert q is not None, "queries are required"
    assert k is not None, "keys are required"
    axis = -2 if op.layout in ("bsd", "bhsd") else -3
    return op.num_heads * q.shape[axis] * k.shape[axis] * q.dtype.itemsize


def by_heads(x: np.ndarray, layout: str, heads: int) -> np.ndarray:
    """A view [batch, heads, sequence, features] of any layout."""
    if layout == "bhsd":
        return x
    if layout == "bsd":
        x = x.reshape(*(x.shape if x.ndim == 3 else (1, *x.shape))[:2], heads, -1)
    return x.transpose(0, 2, 1, 3)


def hidden_keys(op: Attention, queries: int, keys: int, valid: int | None) -> np.ndarray | None:
    """bool[queries or 1, keys], true where the position hides the key; aligned to the end of the valid keys."""
    if op.mask_kind not in ("causal", "sliding_window"):
        return None if valid is None else np.arange(keys)[None] >= valid
    offset = np.arange(keys) - (np.arange(queries)[:, None] + (keys if valid is None else valid) - queries)
    hidden: np.ndarray = offset > 0
    return hidden if op.window is None else hidden | (offset < -op.window)


@kernels.register(
    Attention, dtypes=f"{FLOAT} i64 bool", when=(zeroes_empty_rows, fitting_dtypes), workspace=scores_nbytes
)
def attention(
    op: Attention,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    lengths: np.ndarray | None = None,
    *,
    out: np.ndarray,
    workspace: np.ndarray | None,
) -> None:
    """Scores, softmax and weighted sum of one batch element after the other."""
    if not out.size:
        return
    if not k.size or workspace is None:
        out[...] = 0  # no key is visible to anyone
        return
    heads, kv_heads = op.num_heads, op.kv_heads
    queries, keys, values = (by_heads(x, op.layout, n) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads)))
    results = by_heads(out, op.layout, heads)
    batch, _, n_queries, _ = queries.shape
    n_keys = keys.shape[2]
    scores = workspace.view(q.dtype).reshape(kv_heads, heads // kv_heads, n_queries, n_keys)
    valid = None if lengths is None else np.broadcast_to(np.clip(lengths, 0, n_keys), batch)
    by_position = None if valid is not None else hidden_keys(op, n_queries, n_keys, None)
    shape = (batch, heads, n_queries, n_keys)
    hidden = None if mask is None else np.broadcast_to(_hidden(mask), shape)
    added = None if bias is None else np.broadcast_to(bias, shape)
    for b in range(batch):
        grouped = queries[b].reshape(kv_heads, heads // kv_heads, n_queries, -1)
        np.matmul(grouped, keys[b][:, None].swapaxes(-1, -2), out=scores)
        np.multiply(scores, q.dtype.type(op.scale), out=scores)
        flat = scores.reshape(heads, n_queries, n_keys)
        if op.attn_logit_softcap is not None:
            cap = q.dtype.type(op.attn_logit_softcap)
            np.divide(flat, cap, out=flat)
            np.tanh(flat, out=flat)
            np.multiply(flat, cap, out=flat)
        if added is not None:
            np.add(flat, added[b], out=flat)
        if valid is not None:
            by_position = hidden_keys(op, n_queries, n_keys, int(valid[b]))
        if by_position is not None:
            np.copyto(flat, -np.inf, where=by_position)
        if hidden is not None:
            np.copyto(flat, -np.inf, where=hidden[b])
        softmax_rows(flat, is_empty_zero=True)
        weighted = np.matmul(scores, values[b][:, None])
        results[b] = weighted.reshape(heads, n_queries, -1)


def _hidden(mask: np.ndarray) -> np.ndarray:
    """Return where a mask hides: a bool shows where true, a number where it is at least 0.5; [batch, keys] is padded inside."""
    hidden: np.ndarray = ~mask if mask.dtype == np.bool_ else ~(mask >= 0.5)
    return hidden[:, None, None, :] if hidden.ndim == 2 else hidden
