"""State spaces beside attention (Mamba 2): a head has one decay, and a group of heads shares what enters and leaves a state.

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
from rlx_models.architectures.decoders.recurrent import State, convolved
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import ACTIVATIONS, Parameters, layer_shapes, linear

__all__ = ["StateSpace", "state_space"]


@frozen(kw_only=True)
class StateSpace:
    """A mixer of tokens by a recurrence.

    It keeps the last inputs of its convolution f32[batch, kernel - 1, channels], and the state f32[batch, inner, states].

    Attributes:
        d, inner: Features between layers, and of all heads.
        heads, groups: The numbers of heads, and of groups that share inputs and outputs of states.
        states: The size of the state of a channel.
        kernel: The length of the convolution.
        act: After the convolution.
        factor, factors: Multipliers of the input, and of the first product f32[outputs].
        steps: The least and the greatest step of time.
        eps: Of the norm before the last product, or `None`: there is none.
        is_normed_first: Whether that norm is before the gate.
        has_bias, has_conv_bias, has_out_bias: Whether the first product, the convolution and the last product have biases.
    """

    d: int
    inner: int
    heads: int
    groups: int
    states: int
    kernel: int
    act: Callable[[Any], Any] = field(eq=False)
    factor: float
    factors: np.ndarray = field(eq=False)
    steps: tuple[float, float]
    eps: float | None
    is_normed_first: bool
    has_bias: bool
    has_conv_bias: bool
    has_out_bias: bool

    @property
    def channels(self) -> int:
        """The channels of the convolution: features, and what enters and leaves the states."""
        return self.inner + 2 * self.groups * self.states

    @property
    def pair(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Rows and features of what is kept."""
        return (self.kernel - 1, self.channels), (self.inner, self.states)

    def shapes(self, at: str) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the mixer called `at`."""
        return {
            **{f"{at}.{name}": (self.heads,) for name in ("A_log", "D", "dt_bias")},
            f"{at}.conv1d.weight": (self.channels, 1, self.kernel),
            **({f"{at}.conv1d.bias": (self.channels,)} if self.has_conv_bias else {}),
            **layer_shapes(f"{at}.in_proj", len(self.factors), self.d, has_bias=self.has_bias),
            **layer_shapes(f"{at}.out_proj", self.d, self.inner, has_bias=self.has_out_bias),
            **({} if self.eps is None else {f"{at}.norm.weight": (self.inner,)}),
        }

    def __call__(self, parameters: Parameters, at: str, h: Any, real: Any, state: State) -> tuple[Any, State]:
        """Return f32[batch, steps, d] and the state behind the last step; `real` is 0 for padding."""
        product = linear(parameters, f"{at}.in_proj", h * self.factor) * self.factors
        gate, x, rates = rlx.split(product, [self.inner, self.inner + self.channels], axis=-1)
        x, last = convolved(parameters, f"{at}.conv1d", x * real, state[0], self.kernel)
        x = self.act(x) * real
        x, b, c = rlx.split(x, [self.inner, self.inner + self.groups * self.states], axis=-1)
        delta = rlx.clip(nn.softplus(rates + parameters[f"{at}.dt_bias"]), *self.steps)
        width = self.inner // self.heads
        delta = rlx.repeat(delta, width, axis=-1)
        decay = -rlx.exp(rlx.repeat(parameters[f"{at}.A_log"], width, axis=0))
        decay = rlx.broadcast_to(decay[:, None], (self.inner, self.states))
        y, after = self._scanned(x, delta, decay, b, c, state[1])
        y = y + x * rlx.repeat(parameters[f"{at}.D"], width, axis=0)
        return linear(parameters, f"{at}.out_proj", self._gated(parameters, at, y, gate)), (last, after)

    def _scanned(self, x: Any, delta: Any, decay: Any, b: Any, c: Any, state: Any) -> tuple[Any, Any]:
        """Return the scans of all groups side by side."""
        channels = (rlx.split(each, self.groups, axis=-1) for each in (x, delta, b, c))
        rows = (rlx.split(decay, self.groups, axis=0), rlx.split(state, self.groups, axis=1))
        scans = [
            nn.selective_scan(xs, deltas, a, bs, cs, state=before)
            for xs, deltas, bs, cs, a, before in zip(*channels, *rows, strict=True)
        ]
        return rlx.concat([y for y, _ in scans], axis=-1), rlx.concat([after for _, after in scans], axis=1)

    def _gated(self, parameters: Parameters, at: str, y: Any, gate: Any) -> Any:
        if self.eps is None:
            return y * rlx.silu(gate)
        y = y if self.is_normed_first else y * rlx.silu(gate)
        grouped = rlx.reshape(y, (*y.shape[:-1], self.groups, self.inner // self.groups))
        y = rlx.reshape(nn.rms_norm(grouped, eps=self.eps), y.shape) * parameters[f"{at}.norm.weight"]
        return y * rlx.silu(gate) if self.is_normed_first else y


def state_space(config: Config, d: int) -> StateSpace:
    """Return the mixer that a configuration of Falcon-H1 states."""
    inner = config.size("mamba_d_ssm", int(config.number("mamba_expand", 2) * d))
    heads, groups, states = (config.size(f"mamba_{name}") for name in ("n_heads", "n_groups", "d_state"))
    if inner % heads or heads % groups:
        config.faults.append(Fact("mamba_n_heads", f"{heads}, for {inner} features in {groups} groups"))
        heads, groups = 1, 1
    if config.rows.get("mamba_d_head") not in (None, "auto", inner // heads):
        config.faults.append(Fact("mamba_d_head", f"{config.rows['mamba_d_head']!r}, and {inner} / {heads}"))
    sizes = (inner, inner, groups * states, groups * states, heads)
    factors = np.repeat(config.numbers("ssm_multipliers", (1.0,) * 5), sizes)
    least, greatest = config.numbers("time_step_limit", (0.0, float("inf")))
    return StateSpace(
        d=d,
        inner=inner,
        heads=heads,
        groups=groups,
        states=states,
        kernel=config.size("mamba_d_conv", 4),
        act=ACTIVATIONS[config.known("hidden_act", *ACTIVATIONS, default="silu")],
        factor=config.number("ssm_in_multiplier", 1.0),
        factors=factors.astype(np.float32),
        steps=(least, greatest),
        eps=config.number("rms_norm_eps", 1e-5) if config.flag("mamba_rms_norm", False) else None,
        is_normed_first=config.flag("mamba_norm_before_gate", True),
        has_bias=config.flag("mamba_proj_bias", False),
        has_conv_bias=config.flag("mamba_conv_bias", True),
        has_out_bias=config.flag("projectors_bias", False),
    )
