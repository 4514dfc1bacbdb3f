"""Mamba-2 mixers in parallel to attention (Falcon-H1): a head has one decay, and a group of heads shares inputs and outputs.

Source:
    Dao, Gu 2024, "Transformers are SSMs", arXiv:2405.21060, section 7; Zuo et al. 2025, "Falcon-H1", arXiv:2507.22448, section 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import Fact
from rlx_models.architectures.decoders.recurrent import State, StateShape, causal_convolution
from rlx_models.checkpoints import Config
from rlx_models.layers.linear import ACTIVATIONS, Parameters, linear, linear_shapes


@frozen(kw_only=True)
class Mamba2Mixer:
    """A mixer of tokens by a recurrence.

    Attributes:
        hidden_size, intermediate_size: Features of the layer, and of all heads.
        num_heads, num_groups: The numbers of heads, and of groups that share inputs and outputs of states.
        state_size: The size of the state of a channel.
        kernel_size: Of the convolution.
        act: Activation after the convolution.
        input_multiplier, multipliers: Of the input, and of the input projection f32[outputs].
        time_step_limits: The minimum and the maximum time step.
        eps: Of the norm before the output projection; `None`: there is no norm.
        norm_before_gate: Whether that norm is before the gate.
        has_bias, has_conv_bias, has_output_bias: Whether the input projection, the convolution and the output projection have
            biases.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_groups: int
    state_size: int
    kernel_size: int
    act: Callable[[Any], Any] = field(eq=False)
    input_multiplier: float
    multipliers: np.ndarray = field(eq=False)
    time_step_limits: tuple[float, float]
    eps: float | None
    norm_before_gate: bool
    has_bias: bool
    has_conv_bias: bool
    has_output_bias: bool

    @property
    def channels(self) -> int:
        """The channels of the convolution: features, and inputs and outputs of the states."""
        return self.intermediate_size + 2 * self.num_groups * self.state_size

    @property
    def state(self) -> StateShape:
        """The last inputs of the convolution, and the state of each channel."""
        return (self.kernel_size - 1, self.channels), (self.intermediate_size, self.state_size)

    def shapes(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the mixer `prefix`."""
        d, inner = self.hidden_size, self.intermediate_size
        return {
            **{f"{prefix}.{name}": (self.num_heads,) for name in ("A_log", "D", "dt_bias")},
            f"{prefix}.conv1d.weight": (self.channels, 1, self.kernel_size),
            **({f"{prefix}.conv1d.bias": (self.channels,)} if self.has_conv_bias else {}),
            **linear_shapes(f"{prefix}.in_proj", len(self.multipliers), d, has_bias=self.has_bias),
            **linear_shapes(f"{prefix}.out_proj", d, inner, has_bias=self.has_output_bias),
            **({} if self.eps is None else {f"{prefix}.norm.weight": (inner,)}),
        }

    def __call__(self, parameters: Parameters, prefix: str, h: Any, mask: Any, state: State) -> tuple[Any, State]:
        """Return f32[batch, length, hidden_size] and the state after the last token; `mask` is 0 for padding."""
        inner = self.intermediate_size
        projected = linear(parameters, f"{prefix}.in_proj", h * self.input_multiplier) * self.multipliers
        gate, x, dt = rlx.split(projected, [inner, inner + self.channels], axis=-1)
        x, inputs = causal_convolution(parameters, f"{prefix}.conv1d", x * mask, state[0], self.kernel_size)
        x = self.act(x) * mask
        x, b, c = rlx.split(x, [inner, inner + self.num_groups * self.state_size], axis=-1)
        delta = rlx.clip(nn.softplus(dt + parameters[f"{prefix}.dt_bias"]), *self.time_step_limits)
        head_size = inner // self.num_heads
        delta = rlx.repeat(delta, head_size, axis=-1)
        a = -rlx.exp(rlx.repeat(parameters[f"{prefix}.A_log"], head_size, axis=0))
        a = rlx.broadcast_to(a[:, None], (inner, self.state_size))
        y, channel_states = self._scan(x, delta, a, b, c, state[1])
        y = y + x * rlx.repeat(parameters[f"{prefix}.D"], head_size, axis=0)
        y = linear(parameters, f"{prefix}.out_proj", self._gate(parameters, prefix, y, gate))
        return y, (inputs, channel_states)

    def _scan(self, x: Any, delta: Any, a: Any, b: Any, c: Any, state: Any) -> tuple[Any, Any]:
        """Return the scans of all groups, concatenated."""
        channels = (rlx.split(each, self.num_groups, axis=-1) for each in (x, delta, b, c))
        rows = (rlx.split(a, self.num_groups, axis=0), rlx.split(state, self.num_groups, axis=1))
        scans = [
            nn.selective_scan(x_group, delta_group, a_group, b_group, c_group, state=state_group)
            for x_group, delta_group, b_group, c_group, a_group, state_group in zip(*channels, *rows, strict=True)
        ]
        return rlx.concat([y for y, _ in scans], axis=-1), rlx.concat([state for _, state in scans], axis=1)

    def _gate(self, parameters: Parameters, prefix: str, y: Any, gate: Any) -> Any:
        if self.eps is None:
            return y * rlx.silu(gate)
        y = y if self.norm_before_gate else y * rlx.silu(gate)
        grouped = rlx.reshape(y, (*y.shape[:-1], self.num_groups, self.intermediate_size // self.num_groups))
        y = rlx.reshape(nn.rms_norm(grouped, eps=self.eps), y.shape) * parameters[f"{prefix}.norm.weight"]
        return y * rlx.silu(gate) if self.norm_before_gate else y


def mamba2_mixer(config: Config, hidden_size: int) -> Mamba2Mixer:
    """Return the mixer of a configuration of Falcon-H1."""
    inner = config.size("mamba_d_ssm", int(config.number("mamba_expand", 2) * hidden_size))
    heads, groups, states = (config.size(f"mamba_{name}") for name in ("n_heads", "n_groups", "d_state"))
    if inner % heads or heads % groups:
        config.faults.append(Fact("mamba_n_heads", f"{heads}, for {inner} features in {groups} groups"))
        heads, groups = 1, 1
    if config.values.get("mamba_d_head") not in (None, "auto", inner // heads):
        config.faults.append(Fact("mamba_d_head", f"{config.values['mamba_d_head']!r}, and {inner} / {heads}"))
    sizes = (inner, inner, groups * states, groups * states, heads)
    minimum, maximum = config.numbers("time_step_limit", (0.0, float("inf")))
    return Mamba2Mixer(
        hidden_size=hidden_size,
        intermediate_size=inner,
        num_heads=heads,
        num_groups=groups,
        state_size=states,
        kernel_size=config.size("mamba_d_conv", 4),
        act=ACTIVATIONS[config.choice("hidden_act", *ACTIVATIONS, default="silu")],
        input_multiplier=config.number("ssm_in_multiplier", 1.0),
        multipliers=np.repeat(config.numbers("ssm_multipliers", (1.0,) * 5), sizes).astype(np.float32),
        time_step_limits=(minimum, maximum),
        eps=config.number("rms_norm_eps", 1e-5) if config.flag("mamba_rms_norm", False) else None,
        norm_before_gate=config.flag("mamba_norm_before_gate", True),
        has_bias=config.flag("mamba_proj_bias", False),
        has_conv_bias=config.flag("mamba_conv_bias", True),
        has_output_bias=config.flag("projectors_bias", False),
    )
