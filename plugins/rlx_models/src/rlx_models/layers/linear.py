"""What architectures are made of: layers by the names and layouts that checkpoints have them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_models.checkpoints.config import Shapes

__all__ = [
    "ACTIVATIONS",
    "Architecture",
    "Decoding",
    "Pair",
    "Parameters",
    "layer_shapes",
    "linear",
    "norm",
    "norm_shapes",
]

Parameters = Mapping[str, Any]

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": nn.gelu,
    "gelu_new": lambda x: nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: nn.gelu(x, approximate=True),
    "silu": rlx.silu,
    "swish": rlx.silu,
    "relu": rlx.relu,
    "quick_gelu": lambda x: x * rlx.sigmoid(1.702 * x),
}
"""By what configurations call them."""


Pair = tuple[tuple[int | None, int], tuple[int | None, int]]
"""Rows and features of two arrays of a cache."""


@frozen
class Decoding:
    """How a model continues texts, token by token.

    Attributes:
        step: `step(parameters, ids, padding, cache, at)`: from ids i64[batch, steps], which go to places `at` and on of a room
            whose first `padding` i64[batch] places nobody sees, to the logits f32[batch, words] behind the last of them and the
            cache with their keys and values.
        cache: Pairs f32[batch, rows, features] as `(rows, features)`, zeros before the first token: keys and values of a layer,
            whose rows are the room (`None`), or its state.
        positions: The most tokens of a text, where there is such a number.
        read: Of one with an encoder: `read(parameters, *inputs)` gives, as a tuple, what a step takes besides.
        start: Of one that reads its prompts: the token that what it writes begins with.
    """

    step: Callable[..., tuple[Any, list[tuple[Any, Any]]]]
    cache: tuple[Pair, ...]
    positions: int | None
    read: Callable[..., tuple[Any, ...]] | None = None
    start: int | None = None


@frozen
class Architecture:
    """What a configuration makes of a `model_type`.

    Attributes:
        shapes: Its tensors.
        prefix: What checkpoints may put before their names.
        unused: Beginnings or ends of names of tensors that checkpoints may have besides.
        inputs: The specs of its inputs by name.
        function: `function(parameters, *inputs)`.
        decoding: Of one that continues texts.
        optional: Tensors that a checkpoint may lack.
        parts: Functions, with their inputs, that are models of their own: the `encoder` of one with a decoder.
    """

    shapes: Shapes
    prefix: str
    unused: tuple[str, ...]
    inputs: Mapping[str, rlx.TensorType]
    function: Callable[..., Any]
    decoding: Decoding | None = None
    optional: tuple[str, ...] = ()
    parts: Mapping[str, tuple[Callable[..., Any], Mapping[str, rlx.TensorType]]] = field(factory=dict)


def linear(parameters: Parameters, name: str, x: Any, *, is_turned: bool = False) -> Any:
    """`x` times a weight, which torch's layers have as `[outputs, inputs]`; with a bias where there is one."""
    weight = parameters[f"{name}.weight"]
    product = x @ (weight if is_turned else rlx.matrix_transpose(weight))
    return product + parameters[f"{name}.bias"] if f"{name}.bias" in parameters else product


def layer_shapes(name: str, outputs: int, inputs: int, *, has_bias: bool = True) -> dict[str, tuple[int, ...]]:
    """The tensors of a `linear`."""
    bias: dict[str, tuple[int, ...]] = {f"{name}.bias": (outputs,)} if has_bias else {}
    return {f"{name}.weight": (outputs, inputs), **bias}


def norm_shapes(name: str, d: int) -> dict[str, tuple[int, ...]]:
    """The tensors of a layer norm."""
    return {f"{name}.weight": (d,), f"{name}.bias": (d,)}


def norm(parameters: Parameters, name: str, x: Any, eps: float) -> Any:
    """A layer norm, with a bias where there is one."""
    return nn.layer_norm(x, parameters[f"{name}.weight"], parameters.get(f"{name}.bias"), eps=eps)
