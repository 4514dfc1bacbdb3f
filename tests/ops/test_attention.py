"""Attention against explicit NumPy, one head and one query at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_core.ir.graph import Builder, decomposition
from rlx_core.ir.types import spec
from rlx_core.ops.attention import Attention, attention, attention_backward

RNG = np.random.default_rng(11)


def explicit(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    visible: np.ndarray | None = None,
    bias: np.ndarray | float = 0.0,
    scale: float | None = None,
    cap: float | None = None,
) -> np.ndarray:
    """[b, h, s, d] attention with loops; a query that sees nothing gives 0."""
    batch, heads, queries, features = q.shape
    group = heads // k.shape[1]
    bias = np.broadcast_to(bias, (batch, heads, queries, k.shape[2]))
    out = np.zeros((*q.shape[:3], v.shape[3]))
    for b, h, i in np.ndindex(batch, heads, queries):
        u = k[b, h // group] @ q[b, h, i] * (features**-0.5 if scale is None else scale)
        z = (u if cap is None else cap * np.tanh(u / cap)) + bias[b, h, i]
        shown = np.ones(len(z), bool) if visible is None else np.broadcast_to(visible, bias.shape)[b, h, i]
        if shown.any():
            e = np.where(shown, np.exp(z - z[shown].max()), 0)
            out[b, h, i] = e / e.sum() @ v[b, h // group]
    return out


def draw(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def qkv(b: int = 2, h: int = 4, kv: int = 4, s: int = 4, t: int = 4, d: int = 3, e: int = 3) -> tuple[np.ndarray, ...]:
    return draw(b, h, s, d), draw(b, kv, t, d), draw(b, kv, t, e)


POSITIONAL: list[tuple[dict[str, Any], Any]] = [
    ({"mask_kind": "causal"}, lambda i, j: j <= i),
    ({"mask_kind": "sliding_window", "window": 1}, lambda i, j: (j <= i) & (j >= i - 1)),
    ({"mask_kind": "sliding_window", "window": 0}, lambda i, j: j == i),
]


@pytest.mark.parametrize(("settings", "shows"), POSITIONAL)
@pytest.mark.parametrize(("s", "t"), [(4, 4), (2, 5), (5, 2)])
def test_positions_are_aligned_at_the_end(settings: dict[str, Any], shows: Any, s: int, t: int) -> None:
    q, k, v = qkv(s=s, t=t)
    visible = shows(np.arange(s)[:, None] + t - s, np.arange(t)[None])
    y = attention(q, k, v, num_heads=4, head_dim=3, layout="bhsd", **settings)
    np.testing.assert_allclose(y, explicit(q, k, v, visible), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kv", [1, 2, 4])
def test_key_heads_serve_consecutive_query_heads(kv: int) -> None:
    q, k, v = qkv(kv=kv, e=5)
    y = attention(q, k, v, num_heads=4, num_kv_heads=kv, head_dim=3, layout="bhsd")
    np.testing.assert_allclose(y, explicit(q, k, v), rtol=1e-12)


def test_layouts_agree_where_sequence_and_heads_have_one_size() -> None:
    q, k, v = qkv(s=4, t=4, h=4)
    settings: dict[str, Any] = {"num_heads": 4, "head_dim": 3, "mask_kind": "causal"}
    y = attention(q, k, v, layout="bhsd", **settings)
    by_position = [np.swapaxes(x, 1, 2) for x in (q, k, v)]
    np.testing.assert_allclose(attention(*by_position, layout="bshd", **settings), np.swapaxes(y, 1, 2), rtol=1e-13)
    flat = [x.reshape(2, 4, 12) for x in by_position]
    merged = np.swapaxes(y, 1, 2).reshape(2, 4, 12)
    np.testing.assert_allclose(attention(*flat, **settings), merged, rtol=1e-13)
    np.testing.assert_allclose(attention(*(x[0] for x in flat), **settings), merged[0], rtol=1e-13)


@pytest.mark.parametrize("shape", [(2, 4), (2, 1, 1, 4), (4, 4, 4), (1, 4, 1, 4), (4,)])
def test_masks_broadcast_to_the_scores(shape: tuple[int, ...]) -> None:
    q, k, v = qkv()
    mask = RNG.uniform(size=shape) < 0.7
    full = mask[:, None, None] if mask.ndim == 2 else mask
    expected = explicit(q, k, v, full)
    settings: dict[str, Any] = {"num_heads": 4, "head_dim": 3, "layout": "bhsd", "mask_kind": "custom"}
    np.testing.assert_allclose(attention(q, k, v, mask, **settings), expected, rtol=1e-12, atol=1e-15)
    as_float = np.where(mask, 0.5, 0.4999)
    np.testing.assert_allclose(attention(q, k, v, as_float, **settings), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("shape", [(1, 4, 4, 4), (4, 1, 1), (2, 4, 4, 4), (4, 4)])
def test_bias_is_added_after_scale_and_cap(shape: tuple[int, ...]) -> None:
    q, k, v = qkv()
    bias = draw(*shape)
    y = attention(q, k, v, None, bias, num_heads=4, head_dim=3, layout="bhsd", score_scale=0.9, attn_logit_softcap=0.5)
    np.testing.assert_allclose(y, explicit(q, k, v, None, bias, scale=0.9, cap=0.5), rtol=1e-12)


@pytest.mark.parametrize(("settings", "shows"), [({}, lambda i, j: j >= 0), *POSITIONAL])
@pytest.mark.parametrize("lengths", [[0, 5], [-2, 9], [3, 4], [1, 2], 3])
def test_lengths_are_as_fewer_keys(settings: dict[str, Any], shows: Any, lengths: Any) -> None:
    """A length below 0 is 0, and one above all keys is all; queries are aligned at their end."""
    q, k, v = qkv(s=2, t=5)
    y = attention(q, k, v, None, None, np.array(lengths), num_heads=4, head_dim=3, layout="bhsd", **settings)
    for b, length in enumerate(np.clip(np.broadcast_to(lengths, 2), 0, 5)):
        visible = shows(np.arange(2)[:, None] + length - 2, np.arange(length)[None])
        cut = (q[b : b + 1], k[b : b + 1, :, :length], v[b : b + 1, :, :length])
        np.testing.assert_allclose(y[b : b + 1], explicit(*cut, visible), rtol=1e-12, atol=1e-15)


def test_lengths_mask_together_with_a_mask_and_a_bias() -> None:
    q, k, v = qkv()
    mask, bias, lengths = RNG.uniform(size=(2, 4)) < 0.7, draw(4, 4, 4), np.array([2, 3])
    visible = (mask & (np.arange(4) < lengths[:, None]))[:, None, None]
    y = attention(q, k, v, mask, bias, lengths, num_heads=4, head_dim=3, layout="bhsd")
    np.testing.assert_allclose(y, explicit(q, k, v, visible, bias), rtol=1e-12, atol=1e-15)


def test_without_a_valid_key_the_result_is_that_of_a_masked_row() -> None:
    q, k, v = qkv(b=1)
    settings: dict[str, Any] = {"num_heads": 4, "head_dim": 3, "layout": "bhsd"}
    uniform, nan = (attention(q, k, v, None, None, np.array(0), empty_row=e, **settings) for e in ("uniform", "nan"))
    np.testing.assert_allclose(uniform, np.broadcast_to(v.mean(axis=2, keepdims=True), uniform.shape), rtol=1e-13)
    assert np.isnan(nan).all()


def test_a_query_that_sees_no_key_gives_zero_values_and_zero_gradients() -> None:
    q, k, v = qkv(b=2, s=3, t=3)
    hidden = np.array([[False, False, False], [True, True, True]])
    settings: dict[str, Any] = {"num_heads": 4, "head_dim": 3, "layout": "bhsd", "mask_kind": "custom"}
    assert not attention(q, k, v, hidden, **settings)[0].any()
    for gradient in attention_backward(q, k, v, np.ones_like(q), hidden, **settings):
        assert not gradient[0].any()
        assert np.isfinite(gradient).all()
        assert gradient[1].any()


def test_an_empty_row_can_be_the_mean_of_all_values_or_nan() -> None:
    q, k, v = qkv(b=1)
    hidden = np.zeros((1, 4), bool)
    settings: dict[str, Any] = {"num_heads": 4, "head_dim": 3, "layout": "bhsd"}
    uniform = attention(q, k, v, hidden, empty_row="uniform", **settings)
    np.testing.assert_allclose(uniform, np.broadcast_to(v.mean(axis=2, keepdims=True), uniform.shape), rtol=1e-13)
    assert np.isnan(attention(q, k, v, hidden, empty_row="nan", **settings)).all()


def test_no_weight_is_dropped_for_being_small() -> None:
    keys = 10_000
    v = np.arange(keys, dtype=np.float32).reshape(1, 1, keys, 1) / keys
    y = attention(np.ones((1, 1, 1, 2), np.float32), np.ones((1, 1, keys, 2), np.float32), v, num_heads=1, head_dim=2,
                  layout="bhsd")  # fmt: skip
    np.testing.assert_allclose(y.item(), v.mean(dtype=np.float64), rtol=1e-5)  # f32 sum of 10 000 terms


@pytest.mark.parametrize("kind", ["causal", "sliding_window"])
def test_types_and_offsets_are_known_with_unknown_sizes(kind: Any) -> None:
    builder = Builder()
    q = builder.input("q", spec("f32[BATCH, SEQ, 8]"))
    k = builder.input("k", spec("f32[BATCH, SEQ + PAST_SEQ, 8]"))
    window = 3 if kind == "sliding_window" else None
    y = attention(q, k, k, num_heads=2, head_dim=4, mask_kind=kind, window=window)
    assert y.type == q.type
    with_op = Attention(num_heads=2, head_dim=4, mask_kind=kind, window=window)
    assert decomposition(with_op, [q.type, k.type, k.type]).output_types == (q.type,)
