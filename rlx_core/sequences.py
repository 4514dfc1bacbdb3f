"""Layers that process a sequence step by step, as functions on `rlx.scan`; models call them by `rlx_core.nn`.

Sequences are `[batch, time, ..]`. Values that depend on one step alone are computed for all steps at once, before the loop. Every
function returns its state after the last step and takes it as `state`, so a sequence can be fed in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.types import normalize_axis
from rlx_core.ops.arguments import flag, whole
from rlx_core.ops.array_shapes import shape_of
from rlx_core.ops.linalg import operand

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["gated_delta_net", "gru", "linear_attention", "lstm", "selective_scan", "update_cache"]


# ------------------------------------------------------------------------------------------ recurrent nets


@checked_call
def lstm(
    x: ArrayLike,
    w: ArrayLike,
    u: ArrayLike,
    b: ArrayLike | None = None,
    *,
    state: tuple[ArrayLike, ArrayLike] | None = None,
    reverse: bool = False,
) -> tuple[Array, tuple[Array, Array]]:
    """A long short-term memory: `c ← σ(f)·c + σ(i)·tanh(g)`, `h ← σ(o)·tanh(c)` of `i, f, g, o = x·w + h·u + b`.

    Args:
        x: `[batch, time, in]`.
        w: `[in, 4·hidden]`, the gates in the order i, f, g, o, as in PyTorch (whose weights are passed transposed).
        u: `[hidden, 4·hidden]`.
        b: `[4·hidden]`; PyTorch's two biases are added.
        state: `h` and `c` before the first step, each `[batch, hidden]`; 0 without.
        reverse: Whether the last element comes first; each result lies where its element does.

    Returns:
        `h` of every step `[batch, time, hidden]`, and `(h, c)` after the last.

    Raises:
        ShapeError: Sizes do not fit; both are named.

    Source:
        Hochreiter, Schmidhuber 1997, "Long short-term memory", Neural Computation 9(8); with the forget gate of Gers et al. 2000.
    """
    weights = _value(u)
    hidden = _recurrent("lstm", x, w, weights, 4)

    def step(carry: Any, z: Any) -> Any:
        h, c = carry
        i, f, g, o = _split(z + h @ weights, hidden, 4)
        c = rlx.sigmoid(f) * c + rlx.sigmoid(i) * rlx.tanh(g)
        h = rlx.sigmoid(o) * rlx.tanh(c)
        return (h, c), h

    return _run("lstm", step, _projected(x, w, b), hidden, state, 2, reverse)


@checked_call
def gru(
    x: ArrayLike,
    w: ArrayLike,
    u: ArrayLike,
    b: ArrayLike | None = None,
    b_hidden: ArrayLike | None = None,
    *,
    state: ArrayLike | None = None,
    reverse: bool = False,
) -> tuple[Array, Array]:
    """A gated recurrent unit: `h ← (1 - σ(z))·tanh(n + σ(r)·m) + σ(z)·h`, with `m` the part of `n` that comes from `h`.

    Args:
        x: `[batch, time, in]`.
        w: `[in, 3·hidden]`, the gates in the order r, z, n, as in PyTorch (whose weights are passed transposed).
        u: `[hidden, 3·hidden]`.
        b, b_hidden: `[3·hidden]`, added to `x·w` and to `h·u`; they differ in `n`, where `r` multiplies the second alone.
        state: `h` before the first step, `[batch, hidden]`; 0 without.
        reverse: Whether the last element comes first.

    Returns:
        `h` of every step `[batch, time, hidden]`, and `h` after the last.

    Raises:
        ShapeError: Sizes do not fit; both are named.

    Source:
        Cho et al. 2014, "Learning phrase representations using RNN encoder-decoder", with the reset gate after the product.
    """
    weights = _value(u)
    hidden = _recurrent("gru", x, w, weights, 3)

    def step(h: Any, z: Any) -> Any:
        recurrent = h @ weights
        if b_hidden is not None:
            recurrent = recurrent + b_hidden
        (r, u_, n), (hr, hu, hn) = _split(z, hidden, 3), _split(recurrent, hidden, 3)
        update_gate = rlx.sigmoid(u_ + hu)
        new = rlx.tanh(n + rlx.sigmoid(r + hr) * hn)
        h = new + update_gate * (h - new)
        return h, h

    outputs, (last,) = _run(
        "gru", _of_one(step), _projected(x, w, b), hidden, None if state is None else (state,), 1, reverse
    )
    return outputs, last


# --------------------------------------------------------------------------------------- state-space models


@checked_call
def selective_scan(
    x: ArrayLike, delta: ArrayLike, a: ArrayLike, b: ArrayLike, c: ArrayLike, *, state: ArrayLike | None = None
) -> tuple[Array, Array]:
    """`S ← exp(δ·a)·S + δ·b·x`, `y = Σ c·S` over the state, per channel: the recurrence of Mamba.

    Args:
        x, delta: `[batch, time, channels]`.
        a: `[channels, states]`, negative where the state is to decay.
        b, c: `[batch, time, states]`.
        state: `S` before the first step, `[batch, channels, states]`; 0 without.

    Returns:
        `y` `[batch, time, channels]`, and `S` after the last step.

    Raises:
        ShapeError: Sizes do not fit; both are named.

    Source:
        Gu, Dao 2023, "Mamba: linear-time sequence modeling with selective state spaces", arXiv:2312.00752.
    """
    decay, *arrays = map(_value, (a, x, delta, b, c))
    batch, time, channels = _dims("selective_scan", "x", x, 3)
    states = _dims("selective_scan", "a", a, 2)[1]
    for name, value, expected in (
        ("delta", delta, (batch, time, channels)),
        ("a", a, (channels, states)),
        ("b", b, (batch, time, states)),
        ("c", c, (batch, time, states)),
    ):
        _expect("selective_scan", name, value, expected)
    first = _state("selective_scan", state, (batch, channels, states), arrays[0])

    def step(s: Any, now: Any) -> Any:
        xt, dt, bt, ct = now
        s = rlx.exp(dt[:, :, None] * decay) * s + (dt * xt)[:, :, None] * bt[:, None, :]
        return s, rlx.sum(s * ct[:, None, :], axis=-1)

    last, outputs = rlx.scan(step, first, tuple(map(_turned, arrays)))
    return _turned(outputs), last


@checked_call
def gated_delta_net(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    g: ArrayLike,
    beta: ArrayLike,
    *,
    state: ArrayLike | None = None,
    chunk: int | None = None,
) -> tuple[Array, Array]:
    """A fast-weight memory with decay and correction: `S ← e^g·S`, `S ← S + k·(β·(v - Sᵀk))ᵀ`, `o = Sᵀq/√n`.

    Args:
        q, k: `[batch, time, heads, n]`; k is usually of length 1.
        v: `[batch, time, heads, m]`.
        g: `[batch, time, heads]`, the logarithm of the decay, at most 0.
        beta: `[batch, time, heads]`, how much of the memory at k is replaced.
        state: `S` before the first step, `[batch, heads, n, m]`; 0 without.
        chunk: Steps that are computed by products at once; must divide the time. Step by step without. Both compute the same
            function; chunks sum in another order.

    Returns:
        `o` `[batch, time, heads, m]`, and `S` after the last step.

    Raises:
        ShapeError: Sizes do not fit, or chunks do not divide the time; both are named.

    Source:
        Yang, Kautz, Hatamizadeh 2024, "Gated delta networks: improving Mamba2 with delta rule", arXiv:2412.06464.
    """
    batch, time, heads, n = _dims("gated_delta_net", "q", q, 4)
    m = _dims("gated_delta_net", "v", v, 4)[3]
    for name, value, expected in (
        ("k", k, (batch, time, heads, n)),
        ("v", v, (batch, time, heads, m)),
        ("g", g, (batch, time, heads)),
        ("beta", beta, (batch, time, heads)),
    ):
        _expect("gated_delta_net", name, value, expected)
    first = _state("gated_delta_net", state, (batch, heads, n, m), _value(q))
    arrays = (_value(q) * n**-0.5, *map(_value, (k, v, g, beta)))
    if chunk is not None:
        return _in_chunks("gated_delta_net", _delta_chunk, arrays, first, chunk)

    def step(s: Any, now: Any) -> Any:
        qt, kt, vt, gt, bt = now
        s = rlx.exp(gt)[:, :, None, None] * s
        wrong = vt - rlx.einsum("bhn,bhnm->bhm", kt, s)
        s = s + kt[:, :, :, None] * (bt[:, :, None] * wrong)[:, :, None, :]
        return s, rlx.einsum("bhn,bhnm->bhm", qt, s)

    last, outputs = rlx.scan(step, first, tuple(map(_turned, arrays)))
    return _turned(outputs), last


@checked_call
def linear_attention(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, *, state: ArrayLike | None = None, chunk: int = 16
) -> tuple[Array, Array]:
    """Causal attention without softmax: `S ← S + k·vᵀ`, `o = Sᵀq`, in chunks of products.

    Args:
        q, k: `[batch, time, heads, n]`, after the feature map if there is one.
        v: `[batch, time, heads, m]`.
        state: `S` before the first step, `[batch, heads, n, m]`; 0 without.
        chunk: Steps that are computed at once; must divide the time.

    Returns:
        `o` `[batch, time, heads, m]`, and `S` after the last step.

    Raises:
        ShapeError: Sizes do not fit, or chunks do not divide the time; both are named.

    Source:
        Katharopoulos et al. 2020, "Transformers are RNNs: fast autoregressive transformers with linear attention".
    """
    batch, time, heads, n = _dims("linear_attention", "q", q, 4)
    m = _dims("linear_attention", "v", v, 4)[3]
    _expect("linear_attention", "k", k, (batch, time, heads, n))
    _expect("linear_attention", "v", v, (batch, time, heads, m))
    first = _state("linear_attention", state, (batch, heads, n, m), _value(q))
    return _in_chunks("linear_attention", _linear_chunk, tuple(map(_value, (q, k, v))), first, chunk)


# ------------------------------------------------------------------------------------------------ decoding


@checked_call
def update_cache(cache: ArrayLike, new: ArrayLike, position: ArrayLike, *, axis: int = 1, ring: bool = False) -> Array:
    """A cache of keys or values with new entries from a position on; in place where the program owns the cache.

    Args:
        cache: `[batch, capacity, ..]`.
        new: `[batch, steps, ..]`, of the cache's other dims.
        position: The index of the first of them: one integer, or one for each batch entry, `[batch]`.
        axis: The axis of the cache's capacity.
        ring: Whether positions begin again at 0 behind the last; then `new` has one step. Otherwise a position where `new` does
            not fit is the last where it does.

    Raises:
        ShapeError: Sizes do not fit; more than one step is given to a ring; or positions of batch entries are given for another
            axis than 1.
    """
    cache_shape, steps = tuple(shape_of(cache)), tuple(shape_of(new))
    along, start = normalize_axis(whole("update_cache: axis", axis), len(cache_shape)), _value(position)
    if len(steps) != len(cache_shape):
        raise ShapeError(f"update_cache: new is {list(steps)}, and the cache {list(cache_shape)}")
    if flag("update_cache: ring", ring):
        if steps[along] != 1:
            raise ShapeError(f"update_cache: a ring takes one step at a time, not {steps[along]}")
        start = start % cache_shape[along]
    if len(start.shape) == 1:
        return _update_entries(cache, new, start, along)
    zero = rlx.zeros_like(start)
    return rlx.dynamic_update_slice(cache, new, [start if k == along else zero for k in range(len(cache_shape))])


def _update_entries(cache: ArrayLike, new: ArrayLike, start: Any, axis: int) -> Array:
    """Return the cache `[batch, capacity, ..]` with the steps of each batch entry from its start on."""
    (batch, capacity, *_), steps = _value(cache).shape, _value(new).shape[1]
    if axis != 1:
        raise ShapeError(f"update_cache: positions of batch entries need the capacity as axis 1, not {axis}")
    _expect("update_cache", "position", start, (batch,))
    first = rlx.minimum(rlx.maximum(rlx.astype(start, rlx.i64), 0), capacity - steps)
    positions = first[:, None] + rlx.arange(steps)
    return rlx.scatter(cache, positions, new, axis=1, batch_dims=1, out_of_bounds="clip")


# ------------------------------------------------------------------------------------------------- chunks


def _in_chunks(
    what: str, chunked: Callable[..., Any], arrays: Sequence[Any], first: Any, chunk: int
) -> tuple[Array, Array]:
    """A scan over chunks of `[batch, time, heads, ..]`, each given to `chunked` as `[batch, heads, chunk, ..]`."""
    size = whole(f"{what}: chunk", chunk, least=1)
    batch, time, heads = arrays[0].shape[:3]
    if not isinstance(time, int) or time % size:
        raise ShapeError(
            f"{what}: chunks of {size} do not divide {time} steps", hint="pad the sequence, or pass chunk="
        )

    def cut(value: Any) -> Any:
        features = value.shape[3:]
        parts = rlx.reshape(value, (batch, time // size, size, heads, *features))
        return rlx.permute_dims(parts, (1, 0, 3, 2, *range(4, 4 + len(features))))

    last, outputs = rlx.scan(lambda s, parts: chunked(s, *parts), first, tuple(map(cut, arrays)))
    whole_time = rlx.permute_dims(outputs, (1, 0, 3, 2, 4))
    return rlx.reshape(whole_time, (batch, time, heads, outputs.shape[-1])), last


def _delta_chunk(s: Any, q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
    """The steps of a chunk at once.

    With γ_t the decay from the chunk's beginning, S_t = γ_t·S + Σ_{j≤t} γ_t/γ_j·k_j·d_jᵀ, where the corrections d are those of
    (I + L)·d = β·(v - γ·Sᵀk), and L_tj = β_t·γ_t/γ_j·(k_t·k_j) for j < t.
    """
    size = q.shape[2]
    decay = rlx.cumulative_sum(g, axis=-1)
    row, column = np.arange(size)[:, None], np.arange(size)
    between = rlx.where(row >= column, decay[..., :, None] - decay[..., None, :], -np.inf)
    share = rlx.exp(between)
    near = rlx.where(row > column, beta[..., :, None] * share * (k @ rlx.matrix_transpose(k)), 0.0)
    grown = rlx.exp(decay)[..., None]
    d = _solved(near, beta[..., None] * (v - grown * (k @ s)))
    o = (grown * q) @ s + (share * (q @ rlx.matrix_transpose(k))) @ d
    left = rlx.exp(decay[..., -1:] - decay)[..., None]
    return rlx.exp(decay[..., -1])[..., None, None] * s + rlx.matrix_transpose(left * k) @ d, o


def _solved(near: Any, right: Any) -> Any:
    """Solve (I + near)·d = right for d, for a strictly lower triangular `near` `[.., t, t]`, a row at a time."""
    steps = near.shape[-1]

    def step(d: Any, t: Any) -> Any:
        row = rlx.take(near, rlx.reshape(t, (1,)), axis=-2)
        solved_row = rlx.take(right, rlx.reshape(t, (1,)), axis=-2) - row @ d
        return rlx.where((np.arange(steps) == t)[:, None], solved_row, d), None

    d, _ = rlx.scan(step, rlx.zeros_like(right), np.arange(steps))
    return d


def _linear_chunk(s: Any, q: Any, k: Any, v: Any) -> Any:
    size = q.shape[2]
    is_past = np.tri(size, dtype=bool)
    o = q @ s + rlx.where(is_past, q @ rlx.matrix_transpose(k), 0.0) @ v
    return s + rlx.matrix_transpose(k) @ v, o


# ------------------------------------------------------------------------------------------------- shapes


def _run(
    what: str, step: Any, z: Any, hidden: int, state: Sequence[Any] | None, count: int, reverse: bool
) -> tuple[Any, tuple[Any, ...]]:
    batch = z.shape[1]
    states = (None,) * count if state is None else tuple(state)
    if len(states) != count:
        raise ShapeError(f"{what}: state has {count} arrays, not {len(states)}")
    first = tuple(_state(what, each, (batch, hidden), z) for each in states)
    last, outputs = rlx.scan(step, first, z, reverse=reverse)
    return _turned(outputs), last


def _of_one(step: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def stepped(carry: Any, x: Any) -> Any:
        new, y = step(carry[0], x)
        return (new,), y

    return stepped


def _recurrent(what: str, x: Any, w: Any, u: Any, gates: int) -> int:
    """Return the number of hidden features, after checking that all sizes match."""
    features = _dims(what, "x", x, 3)[2]
    hidden = _dims(what, "u", u, 2)[0]
    _expect(what, "u", u, (hidden, hidden * gates))
    _expect(what, "w", w, (features, hidden * gates))
    return hidden


def _projected(x: Any, w: Any, b: Any) -> Any:
    """Return `x·w + b` of all steps, with time as the first axis: x is transposed, because the gates have more elements."""
    z = _turned(x) @ _value(w)
    return z if b is None else z + b


def _split(z: Any, size: int, parts: int) -> list[Any]:
    return [z[..., i * size : (i + 1) * size] for i in range(parts)]


def _turned(value: Any) -> Any:
    """Exchange batch and time."""
    value = _value(value)
    return rlx.permute_dims(value, (1, 0, *range(2, len(value.shape))))


def _state(what: str, value: Any, shape: tuple[Any, ...], like: Any) -> Any:
    if value is None:
        return rlx.zeros(shape, dtype=like.dtype)
    _expect(what, "state", value, shape)
    return _value(value)


def _value(x: Any) -> Any:
    """Return an array or a traced value for an operand, which may also be a number."""
    return operand(x)


def _dims(what: str, name: str, value: Any, rank: int) -> tuple[Any, ...]:
    shape = tuple(shape_of(value))
    if len(shape) != rank:
        raise ShapeError(f"{what}: {name} must have {rank} axes, and is {list(shape)}")
    return shape


def _expect(what: str, name: str, value: Any, expected: tuple[Any, ...]) -> None:
    shape = tuple(shape_of(value))
    if shape != expected:
        raise ShapeError(f"{what}: {name} is {list(shape)}, and must be {list(expected)}")
