"""Mamba: a decoder whose layers are selective state-space models.

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
from rlx_models.architectures.architecture import Architecture
from rlx_models.architectures.decoders.recurrent import State, StateShape, causal_convolution, recurrent_lm
from rlx_models.checkpoints import Config
from rlx_models.layers.linear import ACTIVATIONS, Parameters, linear, linear_shapes


@frozen(kw_only=True)
class MambaMixer:
    """A layer without its norm and residual.

    Attributes:
        hidden_size, intermediate_size: Features of the layer, and channels.
        state_size: The size of the state of a channel.
        time_step_rank: Features from which the time steps of all channels are computed.
        kernel_size: Of the convolution.
        act: Activation after the convolution.
        has_bias, has_conv_bias: Whether the input and output projections, and the convolution, have biases.
    """

    hidden_size: int
    intermediate_size: int
    state_size: int
    time_step_rank: int
    kernel_size: int
    act: Callable[[Any], Any] = field(eq=False)
    has_bias: bool
    has_conv_bias: bool

    @property
    def state(self) -> StateShape:
        """The last inputs of the convolution, and the state of each channel."""
        return (self.kernel_size - 1, self.intermediate_size), (self.intermediate_size, self.state_size)

    def shapes(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the mixer `prefix`."""
        d, inner, rank = self.hidden_size, self.intermediate_size, self.time_step_rank
        return {
            f"{prefix}.A_log": (inner, self.state_size),
            f"{prefix}.D": (inner,),
            f"{prefix}.conv1d.weight": (inner, 1, self.kernel_size),
            **({f"{prefix}.conv1d.bias": (inner,)} if self.has_conv_bias else {}),
            **linear_shapes(f"{prefix}.in_proj", 2 * inner, d, has_bias=self.has_bias),
            **linear_shapes(f"{prefix}.x_proj", rank + 2 * self.state_size, inner, has_bias=False),
            **linear_shapes(f"{prefix}.dt_proj", inner, rank),
            **linear_shapes(f"{prefix}.out_proj", d, inner, has_bias=self.has_bias),
        }

    def __call__(self, parameters: Parameters, prefix: str, h: Any, mask: Any, state: State) -> tuple[Any, State]:
        """Return f32[batch, length, hidden_size] and the state after the last token; `mask` is 0 for padding."""
        x, gate = rlx.split(linear(parameters, f"{prefix}.in_proj", h), 2, axis=-1)
        x, inputs = causal_convolution(parameters, f"{prefix}.conv1d", x * mask, state[0], self.kernel_size)
        x = self.act(x) * mask
        splits = [self.time_step_rank, self.time_step_rank + self.state_size]
        dt, b, c = rlx.split(linear(parameters, f"{prefix}.x_proj", x), splits, axis=-1)
        delta = nn.softplus(linear(parameters, f"{prefix}.dt_proj", dt))
        a = -rlx.exp(parameters[f"{prefix}.A_log"])
        y, channel_states = nn.selective_scan(x, delta, a, b, c, state=state[1])
        y = (y + x * parameters[f"{prefix}.D"]) * rlx.silu(gate)
        return linear(parameters, f"{prefix}.out_proj", y), (inputs, channel_states)


@frozen(kw_only=True)
class Mamba:
    """The decoder."""

    vocab_size: int
    num_layers: int
    mixer: MambaMixer
    eps: float
    is_tied: bool

    @property
    def state(self) -> StateShape:
        return self.mixer.state

    @property
    def lm_head(self) -> str:
        return "embeddings.weight" if self.is_tied else "lm_head.weight"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        embedding = (self.vocab_size, self.mixer.hidden_size)
        shapes: dict[str, tuple[int, ...]] = {"embeddings.weight": embedding, self.lm_head: embedding}
        shapes["norm_f.weight"] = (self.mixer.hidden_size,)
        for n in range(self.num_layers):
            shapes |= {f"layers.{n}.norm.weight": (self.mixer.hidden_size,), **self.mixer.shapes(f"layers.{n}.mixer")}
        return shapes

    def hidden_states(
        self, parameters: Parameters, input_ids: Any, mask: Any, states: Sequence[State]
    ) -> tuple[Any, list[State]]:
        h = nn.embedding(input_ids, parameters["embeddings.weight"])
        updated: list[State] = []
        for n, state in enumerate(states):
            x = nn.rms_norm(h, parameters[f"layers.{n}.norm.weight"], eps=self.eps)
            y, new_state = self.mixer(parameters, f"layers.{n}.mixer", x, mask, state)
            h = h + y
            updated.append(new_state)
        return nn.rms_norm(h, parameters["norm_f.weight"], eps=self.eps), updated


def mamba(config: Config) -> Architecture:
    """Return Mamba: input_ids i64[batch, length] -> logits f32[batch, length, vocab_size]."""
    hidden_size = config.size("hidden_size")
    rank = config.values.get("time_step_rank", "auto")
    mixer = MambaMixer(
        hidden_size=hidden_size,
        intermediate_size=config.size("intermediate_size", int(config.number("expand", 2) * hidden_size)),
        state_size=config.size("state_size", 16),
        time_step_rank=math.ceil(hidden_size / 16) if rank == "auto" else config.size("time_step_rank"),
        kernel_size=config.size("conv_kernel", 4),
        act=ACTIVATIONS[config.choice("hidden_act", *ACTIVATIONS, default="silu")],
        has_bias=config.flag("use_bias", False),
        has_conv_bias=config.flag("use_conv_bias", True),
    )
    model = Mamba(
        vocab_size=config.size("vocab_size"),
        num_layers=config.size("num_hidden_layers"),
        mixer=mixer,
        eps=config.number("layer_norm_epsilon", 1e-5),
        is_tied=config.flag("tie_word_embeddings", True),
    )
    return recurrent_lm(model, "backbone.", ("lm_head.weight",) if model.is_tied else ())
