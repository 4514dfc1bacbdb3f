"""Recurrent layers: stacked, in both directions, with the weights as torch lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_torch.aten.activations import dropout
from rlx_torch.aten.context import refuse
from rlx_torch.aten.table import aten

Step = Callable[[Any, Sequence[Any], Any, bool], tuple[Any, Any]]


def _stacked(
    step: Step, x: Any, states: Any, params: Sequence[Any], biased: bool, layers: int, rate: float, train: bool,
    both: bool, batch_first: bool,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Every layer's results joined over directions, and the last state of each layer and direction."""
    is_single = x.ndim == 2
    if is_single:
        x = rlx.expand_dims(x, axis=0)
    elif not batch_first:
        x = rlx.moveaxis(x, 0, 1)
    count = (4 if biased else 2, 2 if both else 1)
    if len(params) != layers * count[0] * count[1]:
        refuse("an LSTM without proj_size")
    ends = []
    for layer in range(layers):
        result = []
        for direction in range(count[1]):
            n = layer * count[1] + direction
            values = params[n * count[0] : (n + 1) * count[0]]
            y, end = step(x, values, states(n, is_single), direction == 1)
            result.append(y)
            ends.append(end)
        x = rlx.concat(result, axis=-1) if both else result[0]
        if rate and train and layer < layers - 1:
            x = dropout(x, rate, train)
    return (rlx.squeeze(x, axis=0) if is_single else x if batch_first else rlx.moveaxis(x, 0, 1)), ends


def _joined(ends: Sequence[Any], is_single: bool) -> Any:
    result = rlx.stack(list(ends), axis=0)
    return rlx.squeeze(result, axis=1) if is_single else result


def _of(states: Any) -> Callable[[int, bool], Any]:
    return lambda n, is_single: rlx.expand_dims(states[n], axis=0) if is_single else states[n]


@aten("lstm.input", draws=True)
def lstm(
    x: Any, hx: Sequence[Any], params: Sequence[Any], has_biases: bool, num_layers: int, rate: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    def step(x: Any, values: Sequence[Any], state: Any, reverse: bool) -> Any:
        bias = values[2] + values[3] if has_biases else None
        return nn.lstm(x, values[0].T, values[1].T, bias, state=state, reverse=reverse)

    h, c = (_of(each) for each in hx)
    y, ends = _stacked(
        step,
        x,
        lambda n, s: (h(n, s), c(n, s)),
        params,
        has_biases,
        num_layers,
        rate,
        train,
        bidirectional,
        batch_first,
    )
    is_single = x.ndim == 2
    return y, *(_joined([end[i] for end in ends], is_single) for i in (0, 1))


def _plain(step: Callable[[bool], Step]) -> Callable[..., Any]:
    def layers(
        x: Any, hx: Any, params: Sequence[Any], has_biases: bool, num_layers: int, rate: float, train: bool,
        bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        y, ends = _stacked(
            step(has_biases), x, _of(hx), params, has_biases, num_layers, rate, train, bidirectional, batch_first
        )
        return y, _joined(ends, x.ndim == 2)

    return layers


def _gru(has_biases: bool) -> Step:
    def step(x: Any, values: Sequence[Any], state: Any, reverse: bool) -> Any:
        biases = values[2:4] if has_biases else (None, None)
        return nn.gru(x, values[0].T, values[1].T, *biases, state=state, reverse=reverse)

    return step


def _rnn(activation: Callable[[Any], Any]) -> Callable[[bool], Step]:
    def of_biases(has_biases: bool) -> Step:
        def step(x: Any, values: Sequence[Any], state: Any, reverse: bool) -> Any:
            """h ← f(x·w + h·u + b); what does not depend on h is one product before."""
            bias = values[2] + values[3] if has_biases else None
            full = rlx.moveaxis(nn.linear(x, values[0].T, bias), 1, 0)

            def one(h: Any, part: Any) -> Any:
                h = activation(part + rlx.matmul(h, values[1].T))
                return h, h

            end, y = rlx.scan(one, state, full, reverse=reverse)
            return rlx.moveaxis(y, 0, 1), end

        return step

    return of_biases


aten("gru.input", draws=True)(_plain(_gru))
aten("rnn_tanh.input", draws=True)(_plain(_rnn(rlx.tanh)))
aten("rnn_relu.input", draws=True)(_plain(_rnn(rlx.relu)))
