"""Mixtures of experts: feed-forward networks of which a token passes through a few, chosen and weighted by a router.

Source:
    Shazeer et al. 2017, "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", arXiv:1701.06538;
    Jiang et al. 2024, "Mixtral of Experts", arXiv:2401.04088, section 2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import Fact
from rlx_core.quantization import QuantizedArray
from rlx_models.architectures.decoders.spec import ExpertsSpec
from rlx_models.checkpoints import Config
from rlx_models.layers.linear import Parameters, dense, linear

STACKED: Final = "stacked_experts"
"""The option of `Experts.is_stacked`; `config.json` does not have it."""

CORRECTION_BIAS: Final = "e_score_correction_bias"


@frozen(kw_only=True)
class Experts:
    """A mixture of gated feed-forward networks with the sizes of a configuration.

    Attributes:
        num_experts, experts_per_token: The numbers of experts, and of those that a token is routed to.
        hidden_size, intermediate_size, shared_size: Features of tokens, within an expert, and within the shared one.
        act: Activation of the gate.
        is_normalised: Whether the weights of a token's experts sum to 1.
        num_groups, groups_per_token, routed_scale: With sigmoid scores: equal groups of experts, the number of groups that the
            experts of a token are chosen from, and the multiplier of the weights.
        swiglu_alpha, swiglu_limit: Of packed experts: the factor within the sigmoid, and the bound of gates and ups.
        layers: Whether each layer has the mixture.
        is_stacked: Whether the weights of a projection are one tensor `[experts, outputs, inputs]`, as in GGUF files, and not one
            for each expert.
    """

    spec: ExpertsSpec
    num_experts: int
    experts_per_token: int
    hidden_size: int
    intermediate_size: int
    shared_size: int
    act: Callable[[Any], Any] = field(eq=False)
    is_normalised: bool
    num_groups: int
    groups_per_token: int
    routed_scale: float
    swiglu_alpha: float
    swiglu_limit: float
    layers: tuple[bool, ...]
    is_stacked: bool

    def shapes(self, layer_prefix: str) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the mixture of a layer."""
        spec, count, d, inner = self.spec, self.num_experts, self.hidden_size, self.intermediate_size
        prefix = f"{layer_prefix}.{spec.name}"
        router = f"{prefix}.{spec.router}"
        shapes: dict[str, tuple[int, ...]] = {f"{router}.weight": (count, d)}
        if spec.scoring == "sigmoid":
            shapes[f"{router}.{CORRECTION_BIAS}"] = (count,)
        if spec.is_packed:
            return shapes | {
                f"{router}.bias": (count,),
                f"{prefix}.experts.gate_up_proj": (count, d, 2 * inner),
                f"{prefix}.experts.gate_up_proj_bias": (count, 2 * inner),
                f"{prefix}.experts.down_proj": (count, inner, d),
                f"{prefix}.experts.down_proj_bias": (count, d),
            }
        if self.is_stacked:
            stacked = self._expert_shapes(f"{prefix}.experts", inner)
            shapes |= {name: (count, *size) for name, size in stacked.items()}
        else:
            for n in range(count):
                shapes |= self._expert_shapes(f"{prefix}.experts.{n}", inner)
        if spec.shared is not None:
            shapes |= self._expert_shapes(f"{prefix}.{spec.shared.name}", self.shared_size)
            shapes |= {f"{prefix}.{spec.shared.gate}.weight": (1, d)} if spec.shared.gate else {}
        return shapes

    def _expert_shapes(self, prefix: str, inner: int) -> dict[str, tuple[int, ...]]:
        d = self.hidden_size
        sizes = {"gate": (inner, d), "up": (inner, d), "down": (d, inner)}
        return {f"{prefix}.{self.spec.names[part]}.weight": size for part, size in sizes.items()}

    def __call__(self, parameters: Parameters, layer_prefix: str, x: Any) -> Any:
        """f32[batch, length, hidden_size] -> f32[batch, length, hidden_size]: a row for each token and each of its experts."""
        spec, chosen = self.spec, self.experts_per_token
        prefix = f"{layer_prefix}.{spec.name}"
        rows = rlx.reshape(x, (-1, self.hidden_size))
        weights, index = self._route(parameters, f"{prefix}.{spec.router}", rows)
        expert = rlx.reshape(index, (-1,))
        # Sorted by expert: neighbouring rows of one expert are multiplied together.
        order = rlx.argsort(expert)
        sorted_rows = rlx.take(rows, order // chosen, axis=0)
        network = self._packed if spec.is_packed else self._separate
        y = network(parameters, f"{prefix}.experts", sorted_rows, rlx.take(expert, order))
        y = rlx.reshape(rlx.take(y, rlx.argsort(order), axis=0), (-1, chosen, self.hidden_size))
        mixed = rlx.sum(y * weights[..., None], axis=1)
        if spec.shared is not None:
            mixed = mixed + self._shared(parameters, prefix, rows)
        return rlx.reshape(mixed, x.shape)

    def _route(self, parameters: Parameters, router: str, rows: Any) -> tuple[Any, Any]:
        """Return weights f32[rows, experts_per_token] and experts i64[rows, experts_per_token]."""
        logits, chosen = linear(parameters, router, rows), self.experts_per_token
        if self.spec.scoring == "softmax":
            weights, index = rlx.top_k(nn.softmax(logits), chosen)
        else:
            scores = rlx.sigmoid(logits)
            _, index = rlx.top_k(self._masked_scores(scores + parameters[f"{router}.{CORRECTION_BIAS}"]), chosen)
            weights = rlx.take_along_axis(scores, index)
        if self.is_normalised:
            weights = weights / rlx.sum(weights, axis=-1, keepdims=True)
        return weights if self.routed_scale == 1.0 else weights * self.routed_scale, index

    def _masked_scores(self, scores: Any) -> Any:
        """Return scores with those outside of the best groups at -inf; the score of a group is that of its two best experts.

        Source:
            DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", arXiv:2412.19437, section 2.1.2.
        """
        grouped = rlx.reshape(scores, (-1, self.num_groups, self.num_experts // self.num_groups))
        best, _ = rlx.top_k(grouped, 2)
        _, index = rlx.top_k(rlx.sum(best, axis=-1), self.groups_per_token)
        is_chosen = rlx.sum(nn.one_hot(index, self.num_groups), axis=1) > 0
        return rlx.reshape(rlx.where(is_chosen[..., None], grouped, -np.inf), (-1, self.num_experts))

    def _separate(self, parameters: Parameters, prefix: str, rows: Any, expert: Any) -> Any:
        def product(part: str, x: Any) -> Any:
            name = f"{self.spec.names[part]}.weight"
            if self.is_stacked:
                weights = parameters[f"{prefix}.{name}"]
            else:
                weights = stacked([parameters[f"{prefix}.{n}.{name}"] for n in range(self.num_experts)])
            return rlx.grouped_matmul(x, weights, expert, is_transposed=True)

        return product("down", self.act(product("gate", rows)) * product("up", rows))

    def _packed(self, parameters: Parameters, prefix: str, rows: Any, expert: Any) -> Any:
        def product(name: str, x: Any) -> Any:
            bias = nn.embedding(expert, parameters[f"{prefix}.{name}_bias"])
            return rlx.grouped_matmul(x, parameters[f"{prefix}.{name}"], expert) + bias

        gate_up, limit = product("gate_up_proj", rows), self.swiglu_limit
        gate = rlx.minimum(gate_up[:, ::2], limit)
        up = rlx.clip(gate_up[:, 1::2], -limit, limit)
        return product("down_proj", (up + 1.0) * gate * rlx.sigmoid(gate * self.swiglu_alpha))

    def _shared(self, parameters: Parameters, prefix: str, rows: Any) -> Any:
        shared, names = self.spec.shared, self.spec.names
        assert shared is not None, "only mixtures with a shared expert have it"
        gate, up = (linear(parameters, f"{prefix}.{shared.name}.{names[part]}", rows) for part in ("gate", "up"))
        y = linear(parameters, f"{prefix}.{shared.name}.{names['down']}", self.act(gate) * up)
        return y if shared.gate is None else y * rlx.sigmoid(linear(parameters, f"{prefix}.{shared.gate}", rows))


def stacked(weights: Sequence[Any]) -> Any:
    """Return the weights of experts as one array; of one scheme as one quantised array, and of several decoded."""
    schemes = {each.scheme for each in weights if isinstance(each, QuantizedArray)}
    first, is_quantized = weights[0], all(isinstance(each, QuantizedArray) for each in weights)
    if not is_quantized or len(schemes) > 1 or any(each.is_shared for scheme in schemes for each in scheme.fields):
        return rlx.stack([dense(each) for each in weights])
    fields = {name: rlx.stack([each.fields[name] for each in weights]) for name in first.fields}
    return QuantizedArray(fields, first.scheme)


def experts(spec: ExpertsSpec, config: Config, hidden_size: int, act: Callable[[Any], Any], num_layers: int) -> Experts:
    """Return the mixture of a configuration."""
    count, chosen, inner = map(config.size_of, (spec.num_experts, spec.experts_per_token, spec.intermediate_size))
    is_grouped = spec.scoring == "sigmoid"
    groups, chosen_groups = (config.size(name, 1) if is_grouped else 1 for name in ("n_group", "topk_group"))
    if is_grouped and (count % groups or count // groups < 2 or chosen_groups > groups):
        text = f"{groups} groups of {count} experts, of which {chosen_groups} are chosen"
        config.faults.append(Fact("n_group", text))
    if chosen > count // groups * chosen_groups:
        text = f"{chosen} of {count // groups * chosen_groups} experts"
        config.faults.append(Fact(spec.experts_per_token.name, text))
    return Experts(
        spec=spec,
        num_experts=count,
        experts_per_token=chosen,
        hidden_size=hidden_size,
        intermediate_size=inner,
        shared_size=_shared_size(spec, config, inner),
        act=act,
        is_normalised=config.is_enabled(spec.is_normalised),
        num_groups=groups,
        groups_per_token=chosen_groups,
        routed_scale=config.number("routed_scaling_factor", 1.0) if is_grouped else 1.0,
        swiglu_alpha=config.number("swiglu_alpha", 1.702),
        swiglu_limit=config.number("swiglu_limit", 7.0),
        layers=layers_with_experts(spec, config, num_layers),
        is_stacked=not spec.is_packed and config.flag(STACKED, False),
    )


def _shared_size(spec: ExpertsSpec, config: Config, inner: int) -> int:
    shared = spec.shared
    if shared is None:
        return 0
    if shared.intermediate_size is not None:
        return config.size_of(shared.intermediate_size)
    return inner * (1 if shared.num_experts is None else config.size_of(shared.num_experts))


def layers_with_experts(spec: ExpertsSpec, config: Config, num_layers: int) -> tuple[bool, ...]:
    """Return whether each layer has the mixture."""
    step = 1 if spec.layer_step is None else config.size_of(spec.layer_step)
    first = 0 if spec.first_layer is None else int(config.number(spec.first_layer.name, spec.first_layer.default))
    dense = (config.values.get(spec.dense_layers) if spec.dense_layers else None) or ()
    if not isinstance(dense, list | tuple):
        config.faults.append(Fact(spec.dense_layers or "", f"{dense!r}, and must be numbers of layers"))
        dense = ()
    return tuple(n >= first and n not in dense and (n + 1) % step == 0 for n in range(num_layers))
