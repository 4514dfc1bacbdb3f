"""Mixtures of experts: nets of which a token passes through a few, chosen and weighted by a router."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import Fact
from rlx_models.architectures.decoders.spec import Mixture
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import Parameters, linear

__all__ = ["Experts", "experts_of"]

CORRECTION = "e_score_correction_bias"


@frozen(kw_only=True)
class Experts:
    """A mixture of gated nets with the sizes of a configuration.

    Attributes:
        kind: Its row.
        count, chosen: The number of experts, and of those that a token passes through.
        d, inner, shared: Features of tokens, within an expert, and within the shared one.
        act: Of the gated half.
        is_normalised: Whether the weights of the chosen experts sum to 1.
        groups, chosen_groups, factor: With sigmoid scores: equal groups of experts, those that choices come from, and the
            multiplier of the weights.
        alpha, limit: Of packed experts: the factor within the sigmoid, and the bound of gates and ups.
        layers: Whether each layer has the mixture.
    """

    kind: Mixture
    count: int
    chosen: int
    d: int
    inner: int
    shared: int
    act: Callable[[Any], Any] = field(eq=False)
    is_normalised: bool
    groups: int
    chosen_groups: int
    factor: float
    alpha: float
    limit: float
    layers: tuple[bool, ...]

    def shapes(self, at: str) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the mixture of the layer called `at`."""
        kind, d, inner = self.kind, self.d, self.inner
        at = f"{at}.{kind.name}"
        router = f"{at}.{kind.router}"
        shapes: dict[str, tuple[int, ...]] = {f"{router}.weight": (self.count, d)}
        if kind.score == "sigmoid":
            shapes[f"{router}.{CORRECTION}"] = (self.count,)
        if kind.is_packed:
            return shapes | {
                f"{router}.bias": (self.count,),
                f"{at}.experts.gate_up_proj": (self.count, d, 2 * inner),
                f"{at}.experts.gate_up_proj_bias": (self.count, 2 * inner),
                f"{at}.experts.down_proj": (self.count, inner, d),
                f"{at}.experts.down_proj_bias": (self.count, d),
            }
        for n in range(self.count):
            shapes |= self._net_shapes(f"{at}.experts.{n}", inner)
        if kind.shared is not None:
            shapes |= self._net_shapes(f"{at}.{kind.shared.name}", self.shared)
            shapes |= {f"{at}.{kind.shared.gate}.weight": (1, d)} if kind.shared.gate else {}
        return shapes

    def _net_shapes(self, at: str, inner: int) -> dict[str, tuple[int, ...]]:
        sizes = {"gate": (inner, self.d), "up": (inner, self.d), "down": (self.d, inner)}
        return {f"{at}.{self.kind.names[part]}.weight": size for part, size in sizes.items()}

    def __call__(self, parameters: Parameters, at: str, x: Any) -> Any:
        """f32[batch, steps, d] -> f32[batch, steps, d]: a row for each token and each of its experts."""
        at = f"{at}.{self.kind.name}"
        rows = rlx.reshape(x, (-1, self.d))
        weights, which = self._routed(parameters, f"{at}.{self.kind.router}", rows)
        expert, repeated = rlx.reshape(which, (-1,)), rlx.repeat(rows, self.chosen, axis=0)
        net = self._packed if self.kind.is_packed else self._separate
        y = rlx.reshape(net(parameters, f"{at}.experts", repeated, expert), (-1, self.chosen, self.d))
        mixed = rlx.sum(y * weights[..., None], axis=1)
        if self.kind.shared is not None:
            mixed = mixed + self._shared(parameters, at, rows)
        return rlx.reshape(mixed, x.shape)

    def _routed(self, parameters: Parameters, router: str, rows: Any) -> tuple[Any, Any]:
        """Return weights f32[rows, chosen] and experts i64[rows, chosen]."""
        logits = linear(parameters, router, rows)
        if self.kind.score == "softmax":
            weights, which = rlx.top_k(nn.softmax(logits), self.chosen)
        else:
            scores = rlx.sigmoid(logits)
            _, which = rlx.top_k(self._choices(scores + parameters[f"{router}.{CORRECTION}"]), self.chosen)
            weights = rlx.take_along_axis(scores, which)
        if self.is_normalised:
            weights = weights / rlx.sum(weights, axis=-1, keepdims=True)
        return weights if self.factor == 1.0 else weights * self.factor, which

    def _choices(self, scores: Any) -> Any:
        """Return scores with those outside of the best groups at -inf; a group counts by its two best experts.

        Source:
            DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", arXiv:2412.19437, section 2.1.2.
        """
        grouped = rlx.reshape(scores, (-1, self.groups, self.count // self.groups))
        best, _ = rlx.top_k(grouped, 2)
        _, which = rlx.top_k(rlx.sum(best, axis=-1), self.chosen_groups)
        is_chosen = rlx.sum(nn.one_hot(which, self.groups), axis=1) > 0
        return rlx.reshape(rlx.where(is_chosen[..., None], grouped, -np.inf), (-1, self.count))

    def _separate(self, parameters: Parameters, at: str, rows: Any, expert: Any) -> Any:
        def product(part: str, given: Any) -> Any:
            weights = [parameters[f"{at}.{n}.{self.kind.names[part]}.weight"] for n in range(self.count)]
            return rlx.grouped_matmul(given, rlx.matrix_transpose(rlx.stack(weights)), expert)

        return product("down", self.act(product("gate", rows)) * product("up", rows))

    def _packed(self, parameters: Parameters, at: str, rows: Any, expert: Any) -> Any:
        def product(name: str, given: Any) -> Any:
            bias = nn.embedding(expert, parameters[f"{at}.{name}_bias"])
            return rlx.grouped_matmul(given, parameters[f"{at}.{name}"], expert) + bias

        both = product("gate_up_proj", rows)
        gate = rlx.minimum(both[:, ::2], self.limit)
        up = rlx.clip(both[:, 1::2], -self.limit, self.limit)
        return product("down_proj", (up + 1.0) * gate * rlx.sigmoid(gate * self.alpha))

    def _shared(self, parameters: Parameters, at: str, rows: Any) -> Any:
        shared, names = self.kind.shared, self.kind.names
        assert shared is not None, "a mixture without one is not asked"
        gate, up = (linear(parameters, f"{at}.{shared.name}.{names[part]}", rows) for part in ("gate", "up"))
        y = linear(parameters, f"{at}.{shared.name}.{names['down']}", self.act(gate) * up)
        return y if shared.gate is None else y * rlx.sigmoid(linear(parameters, f"{at}.{shared.gate}", rows))


def experts_of(kind: Mixture, config: Config, d: int, act: Callable[[Any], Any], layers: int) -> Experts:
    """Return the mixture that a configuration states."""
    count, chosen = (config.size(option.name, option.default) for option in (kind.count, kind.chosen))
    inner = config.size(kind.inner.name, kind.inner.default)
    is_grouped = kind.score == "sigmoid"
    groups = config.size("n_group", 1) if is_grouped else 1
    chosen_groups = config.size("topk_group", 1) if is_grouped else 1
    if is_grouped and (count % groups or count // groups < 2 or chosen_groups > groups):
        config.faults.append(
            Fact("n_group", f"{groups} groups of {count} experts, of which {chosen_groups} are chosen")
        )
    if chosen > count // groups * chosen_groups:
        config.faults.append(Fact(kind.chosen.name, f"{chosen} of {count // groups * chosen_groups} experts"))
    return Experts(
        kind=kind,
        count=count,
        chosen=chosen,
        d=d,
        inner=inner,
        shared=_shared_size(kind, config, inner),
        act=act,
        is_normalised=config.option(kind.is_normalised),
        groups=groups,
        chosen_groups=chosen_groups,
        factor=config.number("routed_scaling_factor", 1.0) if is_grouped else 1.0,
        alpha=config.number("swiglu_alpha", 1.702),
        limit=config.number("swiglu_limit", 7.0),
        layers=_layers(kind, config, layers),
    )


def _shared_size(kind: Mixture, config: Config, inner: int) -> int:
    shared = kind.shared
    if shared is None:
        return 0
    if shared.inner is not None:
        return config.size(shared.inner.name, shared.inner.default)
    return inner * (1 if shared.count is None else config.size(shared.count.name, shared.count.default))


def _layers(kind: Mixture, config: Config, count: int) -> tuple[bool, ...]:
    every = 1 if kind.every is None else config.size(kind.every.name, kind.every.default)
    first = 0 if kind.first is None else int(config.number(kind.first.name, kind.first.default))
    dense = (config.rows.get(kind.dense_layers) if kind.dense_layers else None) or ()
    if not isinstance(dense, list | tuple):
        config.faults.append(Fact(kind.dense_layers or "", f"{dense!r}, and must be numbers of layers"))
        dense = ()
    return tuple(n >= first and n not in dense and (n + 1) % every == 0 for n in range(count))
