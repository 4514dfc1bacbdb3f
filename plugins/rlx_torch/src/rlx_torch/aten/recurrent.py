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


def _layers(step: Callable[[bool], Step]) -> Callable[..., Any]:
    """Return the handler of layers: results joined over directions, and the last states of each layer and direction.

    Args:
        step: Returns the layer of one direction, with or without biases; its state is a tuple if there are several.
    """

    def layers(
        x: Any, hx: Any, params: Sequence[Any], has_biases: bool, num_layers: int, rate: float, train: bool,
        bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        is_single, is_tuple, run = x.ndim == 2, isinstance(hx, list | tuple), step(has_biases)
        if is_single:
            x = rlx.expand_dims(x, axis=0)
        elif not batch_first:
            x = rlx.moveaxis(x, 0, 1)
        count = (4 if has_biases else 2, 2 if bidirectional else 1)
        if len(params) != num_layers * count[0] * count[1]:
            refuse("an LSTM without proj_size")
        ends = []
        for layer in range(num_layers):
            result = []
            for direction in range(count[1]):
                n = layer * count[1] + direction
                values = params[n * count[0] : (n + 1) * count[0]]
                state = [
                    rlx.expand_dims(each[n], axis=0) if is_single else each[n] for each in (hx if is_tuple else [hx])
                ]
                y, end = run(x, values, tuple(state) if is_tuple else state[0], direction == 1)
                result.append(y)
                ends.append(end if is_tuple else (end,))
            x = rlx.concat(result, axis=-1) if bidirectional else result[0]
            if rate and train and layer < num_layers - 1:
                x = dropout(x, rate, train)
        y = rlx.squeeze(x, axis=0) if is_single else x if batch_first else rlx.moveaxis(x, 0, 1)
        last = (rlx.stack(list(each), axis=0) for each in zip(*ends, strict=True))
        return y, *(rlx.squeeze(each, axis=1) if is_single else each for each in last)

    return layers


def _lstm(has_biases: bool) -> Step:
    def step(x: Any, values: Sequence[Any], state: Any, reverse: bool) -> Any:
        bias = values[2] + values[3] if has_biases else None
        return nn.lstm(x, values[0].T, values[1].T, bias, state=state, reverse=reverse)

    return step


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


aten("lstm.input", draws=True)(_layers(_lstm))
aten("gru.input", draws=True)(_layers(_gru))
aten("rnn_tanh.input", draws=True)(_layers(_rnn(rlx.tanh)))
aten("rnn_relu.input", draws=True)(_layers(_rnn(rlx.relu)))
