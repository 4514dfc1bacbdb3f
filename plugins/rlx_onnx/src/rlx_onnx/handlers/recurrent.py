"""Recurrent layers: what depends on one step alone is a product for all steps at once, the rest a scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.handlers.movement import reversed_steps
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles

ACTIVATIONS: dict[str, Callable[[Any, float, float], Any]] = {
    "affine": lambda x, a, b: a * x + b,
    "elu": lambda x, a, b: rlx.elu(x, a),
    "hardsigmoid": lambda x, a, b: rlx.clip(a * x + b, 0, 1),
    "leakyrelu": lambda x, a, b: rlx.leaky_relu(x, a),
    "relu": lambda x, a, b: rlx.relu(x),
    "scaledtanh": lambda x, a, b: a * rlx.tanh(b * x),
    "sigmoid": lambda x, a, b: rlx.sigmoid(x),
    "softplus": lambda x, a, b: rlx.softplus(x),
    "softsign": lambda x, a, b: x / (1 + rlx.abs(x)),
    "tanh": lambda x, a, b: rlx.tanh(x),
    "thresholdedrelu": lambda x, a, b: rlx.where(x > a, x, rlx.zeros_like(x)),
}

DEFAULTS = {"affine": (1.0, 0.0), "elu": (1.0, 0.0), "hardsigmoid": (0.2, 0.5), "leakyrelu": (0.01, 0.0)}


def _activations(node: OnnxNode, names: list[str], direction: int) -> list[Callable[[Any], Any]]:
    """Return the functions of one direction, with the node's parameters if they have some."""
    values = [each.lower() for each in node.get("activations", names * 2)]
    alphas, betas = list(node.get("activation_alpha", [])), list(node.get("activation_beta", []))
    result = []
    for index, name in enumerate(values):
        if name not in ACTIVATIONS:
            node.refuse(f"the activation {name}", ", ".join(sorted(ACTIVATIONS)))
        default = DEFAULTS.get(name, (1.0, 1.0))
        a = alphas[index] if index < len(alphas) else default[0]
        b = betas[index] if index < len(betas) else default[1]
        result.append(_bound(ACTIVATIONS[name], a, b))
    count = len(names)
    return result[direction * count : direction * count + count]


def _bound(function: Callable[[Any, float, float], Any], a: float, b: float) -> Callable[[Any], Any]:
    return lambda x: function(x, a, b)


def _directed(node: OnnxNode, x: Any, lengths: Any, run: Callable[[Any, int], tuple[Any, list[Any]]]) -> Any:
    """Each direction by itself, `run(x, direction)` with x as `[time, batch, in]`; sequences end where their lengths say."""
    names = ["forward", "reverse", "bidirectional"]
    direction = node.choice("direction", *names)
    if node.get("clip") is not None and node.get("clip") <= 0:
        raise FormatError(f"{node}: clip is above 0")
    if x.ndim != 3:
        raise FormatError(f"{node}: its sequences have {x.ndim} axes, not 3")
    batch_first = bool(node.get("layout", 0))
    data = rlx.moveaxis(x, 0, 1) if batch_first else x
    ways = [False, True] if direction == "bidirectional" else [direction == "reverse"]
    result = []
    for number, back in enumerate(ways):
        values = _turned(data, lengths) if back else data
        rows, last = run(values, number)
        rows = _turned(rows, lengths) if back else rows
        if lengths is not None:
            steps = rlx.reshape(rlx.arange(rows.shape[0]), (-1, 1, 1))
            rows = rlx.where(steps < rlx.reshape(rlx.astype(lengths, rlx.i64), (1, -1, 1)), rows, rlx.zeros_like(rows))
        result.append((rows, last))
    ys = rlx.stack([rows for rows, _ in result], axis=1)
    states = [rlx.stack(each, axis=0) for each in zip(*(last for _, last in result), strict=True)]
    if batch_first:
        ys = rlx.permute_dims(ys, (2, 0, 1, 3))
        states = [rlx.moveaxis(each, 0, 1) for each in states]
    return (ys, *states)[: max(node.count, 1)]


def _turned(x: Any, lengths: Any) -> Any:
    return rlx.flip(x, axis=0) if lengths is None else reversed_steps(x, lengths, 0, 1)


def _scanned(step: Callable[..., Any], first: tuple[Any, ...], z: Any, lengths: Any) -> tuple[Any, list[Any]]:
    """A scan whose states stay once a sequence has ended."""
    if lengths is None:
        last, rows = rlx.scan(lambda carry, now: step(carry, now), first, z)
        return rows, list(last)
    counts = rlx.reshape(rlx.astype(lengths, rlx.i64), (-1, 1))

    def kept(carry: Any, now: Any) -> Any:
        number, each = now
        new, row = step(carry, each)
        return tuple(rlx.where(number < counts, a, b) for a, b in zip(new, carry, strict=True)), row

    last, rows = rlx.scan(kept, first, (rlx.arange(z.shape[0]), z))
    return rows, list(last)


def _weights(node: OnnxNode, w: Any, r: Any, b: Any, direction: int, gates: int) -> tuple[Any, Any, Any, Any]:
    """Return the weights of one direction, `[in, gates·hidden]` and `[hidden, gates·hidden]`, and both biases."""
    if w.ndim != 3 or r.ndim != 3:
        raise FormatError(f"{node}: its weights have {w.ndim} and {r.ndim} axes, not 3")
    size = gates * r.shape[2]
    if b is None:
        zero = rlx.zeros((size,), dtype=dtype_of(w.dtype))
        return rlx.matrix_transpose(w[direction]), rlx.matrix_transpose(r[direction]), zero, zero
    return (
        rlx.matrix_transpose(w[direction]),
        rlx.matrix_transpose(r[direction]),
        b[direction, :size],
        b[direction, size:],
    )


def _initial(node: OnnxNode, state: Any, direction: int, x: Any, hidden: Any) -> Any:
    if state is None:
        return rlx.zeros((x.shape[1], hidden), dtype=dtype_of(x.dtype))
    result = state[:, direction] if node.get("layout", 0) else state[direction]
    node.expect("==", result.shape[0], x.shape[1], "the batch of the first state and of the sequences")
    return rlx.broadcast_to(result, (x.shape[1], hidden)) if result.shape[0] == 1 else result


def _clipped(node: OnnxNode) -> Callable[[Any], Any]:
    edge = node.get("clip")
    return (lambda x: x) if edge is None else (lambda x: rlx.clip(x, -edge, edge))


@handles("RNN")
def rnn(node: OnnxNode, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, state: Any = None) -> Any:
    hidden, clip = r.shape[2], _clipped(node)

    def run(data: Any, direction: int) -> tuple[Any, list[Any]]:
        weights, recurrent, bias, more = _weights(node, w, r, b, direction, 1)
        (f,) = _activations(node, ["tanh"], direction)

        def step(carry: Any, z: Any) -> Any:
            h = f(clip(z + carry[0] @ recurrent))
            return (h,), h

        z = data @ weights + (bias + more)
        return _scanned(step, (_initial(node, state, direction, data, hidden),), z, lengths)

    return _directed(node, x, lengths, run)


@handles("GRU")
def gru(node: OnnxNode, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, state: Any = None) -> Any:
    hidden, clip = r.shape[2], _clipped(node)
    after = bool(node.get("linear_before_reset", 0))

    def run(data: Any, direction: int) -> tuple[Any, list[Any]]:
        weights, recurrent, bias, more = _weights(node, w, r, b, direction, 3)
        f, g = _activations(node, ["sigmoid", "tanh"], direction)
        gates, new = recurrent[:, : 2 * hidden], recurrent[:, 2 * hidden :]

        def step(carry: Any, z: Any) -> Any:
            h = carry[0]
            both = f(clip(z[:, : 2 * hidden] + h @ gates + more[: 2 * hidden]))
            update, reset = both[:, :hidden], both[:, hidden:]
            past = reset * (h @ new + more[2 * hidden :]) if after else (reset * h) @ new + more[2 * hidden :]
            n = g(clip(z[:, 2 * hidden :] + past))
            h = n + update * (h - n)
            return (h,), h

        return _scanned(step, (_initial(node, state, direction, data, hidden),), data @ weights + bias, lengths)

    return _directed(node, x, lengths, run)


@handles("LSTM")
def lstm(
    node: OnnxNode,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    state: Any = None,
    cell: Any = None,
    peepholes: Any = None,
) -> Any:
    def products(direction: int) -> tuple[Product, Product, Any]:
        weights, recurrent, bias, more = _weights(node, w, r, b, direction, 4)
        return (lambda data: data @ weights), (lambda h: h @ recurrent), bias + more

    return lstm_by(node, x, r.shape[2], products, lengths, state, cell, peepholes)


Product = Callable[[Any], Any]


def lstm_by(
    node: OnnxNode,
    x: Any,
    hidden: Any,
    products: Callable[[int], tuple[Product, Product, Any]],
    lengths: Any,
    state: Any,
    cell: Any,
    peepholes: Any,
) -> Any:
    """Results of an LSTM: all states, the last state and the last cell. With peepholes the gates read the cell.

    Args:
        products: For a direction, the products of inputs and of states with their weights (gates in the order i, o, f, c), and
            the sum of both biases.
    """
    clip = _clipped(node)
    coupled = bool(node.get("input_forget", 0))

    def run(data: Any, direction: int) -> tuple[Any, list[Any]]:
        of_inputs, of_states, bias = products(direction)
        f, g, h_of = _activations(node, ["sigmoid", "tanh", "tanh"], direction)
        p = None if peepholes is None else peepholes[direction]

        def step(carry: Any, z: Any) -> Any:
            h, c = carry
            z = z + of_states(h)
            i, o, forget, new = (z[:, k * hidden : (k + 1) * hidden] for k in range(4))
            if p is not None:
                i, forget = i + p[:hidden] * c, forget + p[2 * hidden :] * c
            i = f(clip(i))
            forget = 1 - i if coupled else f(clip(forget))
            c = forget * c + i * g(clip(new))
            o = f(clip(o if p is None else o + p[hidden : 2 * hidden] * c))
            h = o * h_of(c)
            return (h, c), h

        first = (_initial(node, state, direction, data, hidden), _initial(node, cell, direction, data, hidden))
        return _scanned(step, first, of_inputs(data) + bias, lengths)

    return _directed(node, x, lengths, run)
