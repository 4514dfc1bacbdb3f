"""What architectures are made of: layers by the names and layouts that checkpoints have them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import Fact
from rlx_torch.pretrained.folder import Config, Shapes

__all__ = [
    "ACTIVATIONS",
    "Architecture",
    "Decoding",
    "Parameters",
    "layer_shapes",
    "linear",
    "norm",
    "norm_shapes",
    "tables_of_rope",
    "turning",
]

Parameters = Mapping[str, Any]

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": nn.gelu,
    "gelu_new": lambda x: nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: nn.gelu(x, approximate=True),
    "silu": rlx.silu,
    "relu": rlx.relu,
    "quick_gelu": lambda x: x * rlx.sigmoid(1.702 * x),
}
"""By what configurations call them."""


@frozen
class Decoding:
    """How a model continues texts, token by token.

    Attributes:
        step: `step(parameters, ids, padding, cache, at)`: from ids i64[batch, steps], which go to places `at` and on of a room
            whose first `padding` i64[batch] places nobody sees, to the logits f32[batch, words] behind the last of them and the
            cache with their keys and values.
        features: Those of the keys, or values, of a layer: a cache is a pair f32[batch, room, features] a layer.
        layers: How many there are.
        positions: The most tokens of a text, where there is such a number.
        read: Of one with an encoder: `read(parameters, *inputs)` gives, as a tuple, what a step takes besides.
        start: Of one that reads its prompts: the token that what it writes begins with.
    """

    step: Callable[..., tuple[Any, list[tuple[Any, Any]]]]
    features: int
    layers: int
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


MOST_ANGLES: Final = 1 << 29
"""Elements of the tables of a model: 4,194,304 positions of heads of 128."""


def turning(config: Config, head: int, room: int) -> Callable[[Any, Any], Any]:
    """What turns queries or keys by their positions i64[steps], counted from 0, or i64[batch, steps]."""
    said = {**config.rows, **(config.rows.get("rope_parameters") or {})}
    turned = int(head * Config(said, config.faults).number("partial_rotary_factor", 1.0))
    cos, sin = tables_of_rope(config, head, room, turned)

    def rope(x: Any, positions: Any) -> Any:
        rank = len(positions.shape)
        return nn.rope(x, cos, sin, positions if rank == 2 else None, head_dim=head, n_rot=turned)

    return rope


def tables_of_rope(config: Config, head: int, room: int, turned: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines f32[room, head / 2] of the angles by which heads, or their first `turned` features, are turned.

    The frequencies of `llama3` are those of Llama 3.1: long waves are stretched, short ones stay, between them both are mixed.
    """
    if room * head > MOST_ANGLES:
        config.faults.append(
            Fact("positions", f"{room:,} of heads of {head:,}; tables of more than {MOST_ANGLES:,} angles")
        )
        room = head = 2
        turned = None
    said = config.rows.get("rope_parameters") or config.rows.get("rope_scaling") or {}
    rope = Config({"rope_theta": config.rows.get("rope_theta", 10000.0), **said}, config.faults)
    kind = rope.known("rope_type", "default", "linear", "llama3", default=said.get("type", "default"))
    rates = rope.number("rope_theta", 10000.0) ** (-np.arange(0, turned or head, 2) / (turned or head))
    if kind == "linear":
        rates = rates / rope.number("factor", 1.0)
    if kind == "llama3":
        factor, low, high = (
            rope.number(n, d) for n, d in (("factor", 8.0), ("low_freq_factor", 1.0), ("high_freq_factor", 4.0))
        )
        turns = rope.number("original_max_position_embeddings", 8192) * rates / (2 * np.pi)
        share = np.clip((turns - low) / (high - low), 0, 1)
        rates = rates * (share + (1 - share) / factor)
    angles = np.arange(room)[:, None] * np.pad(rates, (0, head // 2 - len(rates)))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
