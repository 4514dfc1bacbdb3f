"""Mamba: a decoder whose layers keep a state of fixed size instead of the keys and values of a text.

Source:
    Gu, Dao 2023, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", arXiv:2312.00752, section 3.4 and figure 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_models.architectures.decoders.recurrent import State, convolved, recurrent
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import ACTIVATIONS, Architecture, Parameters, layer_shapes, linear

__all__ = ["mamba"]


@frozen(kw_only=True)
class Mixer:
    """A layer without its norm and residual.

    It keeps the last inputs of the convolution f32[batch, kernel - 1, inner], and the state f32[batch, inner, states].

    Attributes:
        d, inner: Features between layers, and of channels.
        states: The size of the state of a channel.
        rank: Features from which the steps of all channels are computed.
        kernel: The length of the convolution.
        act: After the convolution.
        has_bias, has_conv_bias: Whether the products at both ends, and the convolution, have biases.
    """

    d: int
    inner: int
    states: int
    rank: int
    kernel: int
    act: Callable[[Any], Any] = field(eq=False)
    has_bias: bool
    has_conv_bias: bool

    def shapes(self, at: str) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the layer called `at`."""
        return {
            f"{at}.A_log": (self.inner, self.states),
            f"{at}.D": (self.inner,),
            f"{at}.conv1d.weight": (self.inner, 1, self.kernel),
            **({f"{at}.conv1d.bias": (self.inner,)} if self.has_conv_bias else {}),
            **layer_shapes(f"{at}.in_proj", 2 * self.inner, self.d, has_bias=self.has_bias),
            **layer_shapes(f"{at}.x_proj", self.rank + 2 * self.states, self.inner, has_bias=False),
            **layer_shapes(f"{at}.dt_proj", self.inner, self.rank),
            **layer_shapes(f"{at}.out_proj", self.d, self.inner, has_bias=self.has_bias),
        }

    def __call__(self, parameters: Parameters, at: str, h: Any, real: Any, state: State) -> tuple[Any, State]:
        """Return f32[batch, steps, d] and the state behind the last step; `real` is 0 for padding."""
        x, gate = rlx.split(linear(parameters, f"{at}.in_proj", h), 2, axis=-1)
        x, last = convolved(parameters, f"{at}.conv1d", x * real, state[0], self.kernel)
        x = self.act(x) * real
        rates, b, c = rlx.split(linear(parameters, f"{at}.x_proj", x), [self.rank, self.rank + self.states], axis=-1)
        delta = nn.softplus(linear(parameters, f"{at}.dt_proj", rates))
        decay = -rlx.exp(parameters[f"{at}.A_log"])
        y, after = nn.selective_scan(x, delta, decay, b, c, state=state[1])
        y = (y + x * parameters[f"{at}.D"]) * rlx.silu(gate)
        return linear(parameters, f"{at}.out_proj", y), (last, after)


def mamba(config: Config) -> Architecture:
    """Return Mamba: ids i64[batch, length] -> logits f32[batch, length, words]."""
    d, words, count = config.size("hidden_size"), config.size("vocab_size"), config.size("num_hidden_layers")
    rank = config.rows.get("time_step_rank", "auto")
    mixer = Mixer(
        d=d,
        inner=config.size("intermediate_size", int(config.number("expand", 2) * d)),
        states=config.size("state_size", 16),
        rank=math.ceil(d / 16) if rank == "auto" else config.size("time_step_rank"),
        kernel=config.size("conv_kernel", 4),
        act=ACTIVATIONS[config.known("hidden_act", *ACTIVATIONS, default="silu")],
        has_bias=config.flag("use_bias", False),
        has_conv_bias=config.flag("use_conv_bias", True),
    )
    eps = config.number("layer_norm_epsilon", 1e-5)
    is_tied = config.flag("tie_word_embeddings", True)
    head = "embeddings.weight" if is_tied else "lm_head.weight"
    shapes: dict[str, tuple[int, ...]] = {"embeddings.weight": (words, d), head: (words, d), "norm_f.weight": (d,)}
    for n in range(count):
        shapes |= {f"layers.{n}.norm.weight": (d,), **mixer.shapes(f"layers.{n}.mixer")}

    def layers(parameters: Parameters, ids: Any, real: Any, states: Sequence[State]) -> tuple[Any, list[State]]:
        h = nn.embedding(ids, parameters["embeddings.weight"])
        after: list[State] = []
        for n, state in enumerate(states):
            x = nn.rms_norm(h, parameters[f"layers.{n}.norm.weight"], eps=eps)
            y, found = mixer(parameters, f"layers.{n}.mixer", x, real, state)
            h = h + y
            after.append(found)
        return nn.rms_norm(h, parameters["norm_f.weight"], eps=eps), after

    return recurrent(
        shapes,
        "backbone.",
        layers,
        head,
        count=count,
        pair=((mixer.kernel - 1, mixer.inner), (mixer.inner, mixer.states)),
        unused=() if "lm_head.weight" in shapes else ("lm_head.weight",),
    )
