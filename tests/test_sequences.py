"""Layers over sequences against their definitions in float64, their derivatives, and their parts put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import ShapeError

B, T, X, H, N, M = 2, 6, 3, 4, 5, 3


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape) * 0.5


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(x: Any, w: Any, u: Any, b: Any) -> Any:
    h = c = np.zeros((B, H))
    kept = []
    for t in range(x.shape[1]):
        i, f, g, o = np.split(x[:, t] @ w + h @ u + b, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        kept.append(h)
    return np.stack(kept, 1), h, c


def gru(x: Any, w: Any, u: Any, b: Any, b_hidden: Any) -> Any:
    h = np.zeros((B, H))
    kept = []
    for t in range(x.shape[1]):
        (r, z, n), (hr, hz, hn) = np.split(x[:, t] @ w + b, 3, -1), np.split(h @ u + b_hidden, 3, -1)
        keep = sigmoid(z + hz)
        h = (1 - keep) * np.tanh(n + sigmoid(r + hr) * hn) + keep * h
        kept.append(h)
    return np.stack(kept, 1), h


def selective_scan(x: Any, delta: Any, a: Any, b: Any, c: Any) -> Any:
    s = np.zeros((B, H, N))
    kept = []
    for t in range(x.shape[1]):
        s = np.exp(delta[:, t, :, None] * a) * s + (delta * x)[:, t, :, None] * b[:, t, None, :]
        kept.append((s * c[:, t, None, :]).sum(-1))
    return np.stack(kept, 1), s


def gated_delta_net(q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
    s = np.zeros((B, H, N, M))
    kept = []
    for t in range(q.shape[1]):
        s = np.exp(g[:, t])[..., None, None] * s
        wrong = v[:, t] - np.einsum("bhn,bhnm->bhm", k[:, t], s)
        s = s + np.einsum("bhn,bhm->bhnm", k[:, t], beta[:, t, :, None] * wrong)
        kept.append(np.einsum("bhn,bhnm->bhm", q[:, t], s) / np.sqrt(N))
    return np.stack(kept, 1), s


def linear_attention(q: Any, k: Any, v: Any) -> Any:
    past = np.cumsum(np.einsum("bthn,bthm->bthnm", k, v), axis=1)
    return np.einsum("bthn,bthnm->bthm", q, past), past[:, -1]


GATES = (drawn(B, T, X), drawn(X, 4 * H), drawn(H, 4 * H), drawn(4 * H))
GRU = (drawn(B, T, X), drawn(X, 3 * H), drawn(H, 3 * H), drawn(3 * H), drawn(1, 3 * H)[0])
SCAN = (drawn(B, T, H), abs(drawn(B, T, H)), -abs(drawn(H, N)), drawn(B, T, N), drawn(B, T, N)[::-1].copy())
HEADS = (drawn(B, T, H, N), drawn(B, T, H, N)[::-1].copy(), drawn(B, T, H, M))
DELTA = (*HEADS, -abs(drawn(B, T, H)), sigmoid(drawn(B, T, H)))

LAYERS = [
    pytest.param(nn.lstm, lstm, GATES, {}, id="lstm"),
    pytest.param(nn.gru, gru, GRU, {}, id="gru"),
    pytest.param(nn.selective_scan, selective_scan, SCAN, {}, id="selective_scan"),
    pytest.param(nn.gated_delta_net, gated_delta_net, DELTA, {}, id="gated_delta_net"),
    pytest.param(nn.gated_delta_net, gated_delta_net, DELTA, {"chunk": 3}, id="gated_delta_net in chunks"),
    pytest.param(nn.linear_attention, linear_attention, HEADS, {"chunk": 2}, id="linear_attention"),
]


def leaves(found: Any) -> list[np.ndarray]:
    return [found] if hasattr(found, "dtype") else [leaf for each in found for leaf in leaves(each)]


@pytest.mark.parametrize(("layer", "meaning", "given", "options"), LAYERS)
def test_a_layer_is_its_recurrence(layer: Any, meaning: Any, given: tuple[np.ndarray, ...], options: Any) -> None:
    single = [x.astype("f4") for x in given]
    found = leaves(rlx.jit(lambda *x: layer(*x, **options))(*single))
    for mine, exact in zip(found, meaning(*(x.astype("f8") for x in single)), strict=True):
        assert mine.dtype == np.float32
        assert_allclose(mine, exact, rtol=2e-6, atol=2e-6)


@pytest.mark.medium
@pytest.mark.parametrize(("layer", "meaning", "given", "options"), LAYERS)
def test_its_gradient_is_that_of_small_differences(layer: Any, meaning: Any, given: Any, options: Any) -> None:
    """Along one random direction through all operands and results, in float64."""
    rng = np.random.default_rng(7)
    along = [rng.standard_normal(x.shape) for x in given]
    weights = [rng.standard_normal(y.shape) for y in meaning(*given)]

    def loss(*x: Any) -> Any:
        return sum(rlx.sum(y * w) for y, w in zip(flat(layer(*x, **options)), weights, strict=True))

    def flat(found: Any) -> list[Any]:
        return [leaf for each in found for leaf in (flat(each) if isinstance(each, tuple) else [each])]

    def exact(step: float) -> float:
        moved = (x + step * d for x, d in zip(given, along, strict=True))
        return float(sum((y * w).sum() for y, w in zip(meaning(*moved), weights, strict=True)))

    slopes = rlx.jit(rlx.grad(loss, argnums=tuple(range(len(given)))))(*given)
    found = sum(float((s * d).sum()) for s, d in zip(slopes, along, strict=True))
    step = 1e-5
    assert_allclose(found, (exact(step) - exact(-step)) / (2 * step), rtol=1e-7)


@pytest.mark.parametrize("layer", [nn.lstm, nn.gru], ids=["lstm", "gru"])
def test_a_sequence_may_come_in_parts(layer: Callable[..., Any]) -> None:
    x, *rest = (each.astype("f4") for each in (GATES if layer is nn.lstm else GRU))
    whole, last = layer(x, *rest)
    first, state = layer(x[:, :2], *rest)
    second, end = layer(x[:, 2:], *rest, state=state)
    np.testing.assert_array_equal(np.concatenate([first, second], 1), whole)
    for mine, other in zip(leaves(end), leaves(last), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_reverse_is_the_sequence_turned_around() -> None:
    x, *rest = (each.astype("f4") for each in GATES)
    np.testing.assert_array_equal(nn.lstm(x, *rest, reverse=True)[0], nn.lstm(x[:, ::-1].copy(), *rest)[0][:, ::-1])


def test_a_cache_takes_steps_at_a_position_and_a_ring_begins_again() -> None:
    cache, new = np.zeros((1, 4, 2), np.float32), np.ones((1, 1, 2), np.float32)
    assert nn.update_cache(cache, new, 2)[0, :, 0].tolist() == [0, 0, 1, 0]
    assert nn.update_cache(cache, new, 9)[0, :, 0].tolist() == [0, 0, 0, 1]
    assert nn.update_cache(cache, new, 9, ring=True)[0, :, 0].tolist() == [0, 1, 0, 0]
    step = rlx.jit(lambda cache, new, at: nn.update_cache(cache, new, at), donate=("cache",))
    for at in range(4):
        cache = step(cache, new * (at + 1), np.int32(at))
    assert cache[0, :, 0].tolist() == [1, 2, 3, 4]


def test_batch_entries_of_a_cache_have_positions_of_their_own() -> None:
    """Positions where the steps do not fit are the last where they do, as for one position."""
    cache, new = np.zeros((3, 5, 2), np.float32), np.ones((3, 2, 2), np.float32)
    expected = np.concatenate([nn.update_cache(cache[n : n + 1], new[:1], at) for n, at in enumerate((2, -1, 9))])
    np.testing.assert_array_equal(nn.update_cache(cache, new, np.array([2, -1, 9])), expected)
    np.testing.assert_array_equal(nn.update_cache(cache, new, np.array([2, 0, 200], np.uint8)), expected)
    ring = nn.update_cache(cache, new[:, :1], np.array([1, 5, 9]), ring=True)
    assert [row.tolist().index(1) for row in ring[..., 0]] == [1, 0, 4]
    step = rlx.jit(lambda cache, new, at: nn.update_cache(cache, new, at), donate=("cache",))
    cache = step(cache, new, np.array([0, 1, 2]))
    address = np.asarray(cache).ctypes.data
    cache = step(cache, 2 * new, np.array([1, 2, 3]))
    assert np.asarray(cache).ctypes.data == address
    assert cache[..., 0].tolist() == [[1, 2, 2, 0, 0], [0, 1, 2, 2, 0], [0, 0, 1, 2, 2]]


def test_sizes_that_do_not_fit_are_named() -> None:
    x, w, u, b = GATES
    with pytest.raises(ShapeError, match=r"lstm: w is \[3, 12\], and must be \[3, 16\]"):
        nn.lstm(x, w[:, :12], u, b)
    with pytest.raises(ShapeError, match="gru: x must have 3 axes"):
        nn.gru(x[0], *GRU[1:])
    with pytest.raises(ShapeError, match=r"selective_scan: b is \[2, 6, 4\]"):
        nn.selective_scan(*SCAN[:3], SCAN[3][..., :4], SCAN[4])
    with pytest.raises(ShapeError, match="chunks of 4 do not divide 6 steps"):
        nn.gated_delta_net(*DELTA, chunk=4)
    with pytest.raises(ShapeError, match="a ring takes one step at a time, not 2"):
        nn.update_cache(np.zeros((1, 4)), np.zeros((1, 2)), 0, ring=True)
    with pytest.raises(ShapeError, match=r"update_cache: position is \[3\], and must be \[2\]"):
        nn.update_cache(np.zeros((2, 4)), np.zeros((2, 1)), np.zeros(3, int))
    with pytest.raises(ShapeError, match="need the capacity as axis 1, not 2"):
        nn.update_cache(np.zeros((2, 3, 4)), np.zeros((2, 3, 1)), np.zeros(2, int), axis=2)
