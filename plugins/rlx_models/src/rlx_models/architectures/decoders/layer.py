"""`DecoderLayer`: a layer of a `DecoderSpec` with the sizes of a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import field, frozen

import rlx_core as rlx
from rlx_models.architectures.decoders.attention import AttentionHeads, DecoderAttention
from rlx_models.architectures.decoders.experts import Experts, experts
from rlx_models.architectures.decoders.latent_attention import LatentAttention, latent_attention
from rlx_models.architectures.decoders.mamba2 import Mamba2Mixer, mamba2_mixer
from rlx_models.architectures.decoders.norms import apply_norm, head_norm_shapes, norm_function, norm_shapes
from rlx_models.architectures.decoders.options import SizeOptions, multiplier
from rlx_models.architectures.decoders.positions import Rotation
from rlx_models.architectures.decoders.recurrent import States
from rlx_models.architectures.decoders.spec import DecoderSpec, HeadNormSpec, Projections
from rlx_models.checkpoints import Config
from rlx_models.layers.linear import ACTIVATIONS, Parameters, linear

BIAS_GROUPS: Final = {"q": "qkv", "k": "qkv", "v": "qkv", "qkv": "qkv", "out": "out"}
"""Groups of projections whose biases are enabled together; other projections are of the group `ffn`."""

NORMS: Final = (
    *("attention_norm", "ffn_norm", "attention_post_norm", "ffn_post_norm"),
    *("attention_sum_norm", "ffn_sum_norm"),
)


@frozen(kw_only=True)
class DecoderLayer:
    """A layer of a decoder.

    Attributes:
        hidden_size, intermediate_size: Features of the layer and within the feed-forward network.
        heads: Heads of attention.
        eps: Of the norms.
        act: Activation of the feed-forward network.
        has_bias: Whether projections have biases, by group.
        head_norm, is_parallel, multipliers: As in the spec, with the values of the configuration.
        mamba, experts, latent_attention: Optional parts; see the spec.
    """

    spec: DecoderSpec
    hidden_size: int
    intermediate_size: int
    heads: AttentionHeads
    eps: float
    act: Callable[[Any], Any] = field(eq=False)
    has_bias: dict[str, bool]
    head_norm: HeadNormSpec | None
    is_parallel: bool
    multipliers: dict[str, float]
    mamba: Mamba2Mixer | None
    experts: Experts | None
    latent_attention: LatentAttention | None

    def shapes(self, prefix: str, layer: int) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the layer `prefix` with the index `layer`."""
        names, heads = self.spec.names, self.heads
        shapes = self._projection_shapes(prefix, layer)
        for part in NORMS:
            if part in names:
                shapes |= norm_shapes(self.spec.norm, f"{prefix}.{names[part]}", self.hidden_size)
        if self.head_norm is not None:
            for name, count in zip(self.head_norm.names, (heads.queries, heads.keys), strict=True):
                shapes |= head_norm_shapes(self.head_norm, f"{prefix}.{name}", count, heads.key_size)
        if self.spec.has_sinks:
            shapes[f"{prefix}.self_attn.sinks"] = (heads.queries,)
        if self.experts is not None and self.experts.layers[layer]:
            shapes |= self.experts.shapes(prefix)
        if self.mamba is not None:
            shapes |= self.mamba.shapes(f"{prefix}.mamba")
        if self.latent_attention is not None:
            shapes |= self.latent_attention.shapes(f"{prefix}.self_attn")
        return shapes

    def _projection_shapes(self, prefix: str, layer: int) -> dict[str, tuple[int, ...]]:
        names, heads, d, inner = self.spec.names, self.heads, self.hidden_size, self.intermediate_size
        q, k = heads.queries * heads.key_size, heads.keys * heads.key_size
        outputs = {"q": q, "k": k, "v": k, "qkv": q + 2 * k, "gate": inner, "up": inner}
        outputs |= {"gate_up": 2 * inner, "out": d, "down": d}
        inputs = {"out": heads.queries * heads.value_size, "down": inner}
        replaced = {"ffn"} if self.experts is not None and self.experts.layers[layer] else set()
        replaced |= {"qkv"} if self.latent_attention is not None else set()
        shapes: dict[str, tuple[int, ...]] = {}
        for part in outputs:
            group = BIAS_GROUPS.get(part, "ffn")
            if part not in names or group in replaced:
                continue
            size = (outputs[part], inputs.get(part, d))
            shapes[f"{prefix}.{names[part]}.weight"] = size[::-1] if self.spec.is_transposed else size
            shapes |= {f"{prefix}.{names[part]}.bias": size[:1]} if self.has_bias[group] else {}
        return shapes

    def scaled(self, name: str, x: Any) -> Any:
        """Return `x` times a multiplier, if the layer has it."""
        factor = self.multipliers.get(name, 1.0)
        return x if factor == 1.0 else x * factor

    def __call__(
        self,
        parameters: Parameters,
        prefix: str,
        layer: int,
        h: Any,
        attention: DecoderAttention,
        rotation: Rotation | None,
        states: States,
    ) -> Any:
        """Return the layer `prefix` of h f32[batch, length, hidden_size]."""

        def norm(part: str, x: Any) -> Any:
            name = self.spec.names.get(part)
            return x if name is None else apply_norm(self.spec.norm, parameters, f"{prefix}.{name}", x, self.eps)

        def feed_forward(x: Any) -> Any:
            y = self._feed_forward(parameters, prefix, layer, norm("ffn_norm", x))
            return self.scaled("residual", norm("ffn_post_norm", y))

        x = norm("attention_norm", h)
        y = self._attention(parameters, prefix, layer, self.scaled("attention_input", x), attention, rotation)
        y = self.scaled("residual", norm("attention_post_norm", self.scaled("attention_output", y)))
        if self.mamba is not None:
            mixed, state = self.mamba(parameters, f"{prefix}.mamba", x, states.mask, states.before[layer])
            states.after.append(state)
            y = self.scaled("mamba_output", mixed) + y
        if self.is_parallel:
            return h + y + feed_forward(h)
        h = norm("attention_sum_norm", h + y)
        return norm("ffn_sum_norm", h + feed_forward(h))

    def _project(self, parameters: Parameters, prefix: str, part: str, x: Any) -> Any:
        return linear(parameters, f"{prefix}.{self.spec.names[part]}", x, is_transposed=self.spec.is_transposed)

    def _attention(
        self,
        parameters: Parameters,
        prefix: str,
        layer: int,
        x: Any,
        attention: DecoderAttention,
        rotation: Rotation | None,
    ) -> Any:
        if self.latent_attention is not None:
            y = self.latent_attention(parameters, f"{prefix}.self_attn", layer, x, attention)
            return self._project(parameters, prefix, "out", y)
        if self.spec.projections == "separate":
            q, k, v = (self._project(parameters, prefix, part, x) for part in "qkv")
        else:
            qkv = self._project(parameters, prefix, "qkv", x)
            q, k, v = split_projection(self.spec.projections, qkv, self.heads)
        k = self.scaled("keys", k)
        if self.head_norm is not None:
            pairs = zip((q, k), self.head_norm.names, strict=True)
            q, k = (self._head_norm(self.head_norm, parameters, f"{prefix}.{name}", each) for each, name in pairs)
        if rotation is not None:
            q, k = rotation(q, attention.positions), rotation(k, attention.positions)
        sinks = parameters[f"{prefix}.self_attn.sinks"] if self.spec.has_sinks else None
        return self._project(parameters, prefix, "out", attention(layer, q, k, v, sinks=sinks))

    def _head_norm(self, spec: HeadNormSpec, parameters: Parameters, name: str, x: Any) -> Any:
        if spec.over == "features":
            return apply_norm(self.spec.norm, parameters, name, x, self.eps)
        heads = rlx.reshape(x, (*x.shape[:-1], -1, self.heads.key_size))
        if spec.over == "head":
            return rlx.reshape(apply_norm(self.spec.norm, parameters, name, heads, self.eps), x.shape)
        y = norm_function(self.spec.norm)(heads, eps=self.eps)
        if spec.over == "heads":
            return rlx.reshape(y * parameters[f"{name}.weight"], x.shape)
        weights = [parameters[f"{name}.norms.{n}.weight"] for n in range(heads.shape[-2])]
        return rlx.reshape(y * rlx.stack(weights), x.shape)

    def _feed_forward(self, parameters: Parameters, prefix: str, layer: int, x: Any) -> Any:
        if self.experts is not None and self.experts.layers[layer]:
            return self.experts(parameters, prefix, x)
        if "gate_up" in self.spec.names:
            gate, up = rlx.split(self._project(parameters, prefix, "gate_up", x), 2, axis=-1)
            return self._project(parameters, prefix, "down", self.act(gate) * up)
        up = self._project(parameters, prefix, "up", x)
        if "gate" not in self.spec.names:
            return self._project(parameters, prefix, "down", self.act(up))
        gate = self.act(self.scaled("gate", self._project(parameters, prefix, "gate", x)))
        return self.scaled("ffn", self._project(parameters, prefix, "down", gate * up))


def decoder_layer(spec: DecoderSpec, config: Config, sizes: SizeOptions) -> DecoderLayer:
    """Return the layer of a spec with the sizes of a configuration."""
    hidden_size, num_heads, head_size = sizes("hidden_size"), sizes("num_attention_heads"), sizes.head_size()
    act_name = (
        spec.act if isinstance(spec.act, str) else config.choice(spec.act.name, *ACTIVATIONS, default=spec.act.default)
    )
    act, num_layers = ACTIVATIONS[act_name], sizes("num_hidden_layers")
    mixture = None if spec.experts is None else experts(spec.experts, config, hidden_size, act, num_layers)
    if spec.latent_attention is None:
        num_kv_heads, latent = sizes("num_key_value_heads", spec.num_kv_heads or num_heads), None
        heads = AttentionHeads(num_heads, num_kv_heads, head_size, head_size)
    else:
        latent = latent_attention(spec.latent_attention, config, hidden_size, num_heads)
        heads = AttentionHeads(num_heads, num_heads, head_size, latent.value_size)
    return DecoderLayer(
        spec=spec,
        hidden_size=hidden_size,
        intermediate_size=_intermediate_size(spec, sizes, hidden_size, mixture),
        heads=heads,
        eps=config.number(spec.norm.eps.name, spec.norm.eps.default),
        act=act,
        has_bias={group: config.is_enabled(spec.biases.get(group, False)) for group in ("qkv", "out", "ffn")},
        head_norm=_head_norm(spec, config),
        is_parallel=config.is_enabled(spec.is_parallel),
        multipliers={name: multiplier(config, each) or 1.0 for name, each in spec.multipliers.items()},
        mamba=mamba2_mixer(config, hidden_size) if spec.has_mamba else None,
        experts=mixture,
        latent_attention=latent,
    )


def _head_norm(spec: DecoderSpec, config: Config) -> HeadNormSpec | None:
    norm = spec.head_norm
    return norm if norm is not None and (norm.enabled is None or config.is_enabled(norm.enabled)) else None


def _intermediate_size(spec: DecoderSpec, sizes: SizeOptions, hidden_size: int, mixture: Experts | None) -> int:
    """Return the features within the feed-forward network; 0 if every layer has a mixture of experts."""
    if mixture is not None and all(mixture.layers):
        return 0
    factor = spec.intermediate_factor
    return sizes("intermediate_size", None if factor is None else factor * hidden_size)


def split_projection(order: Projections, x: Any, heads: AttentionHeads) -> tuple[Any, Any, Any]:
    """Return queries, keys and values of one projection.

    `concatenated` has all queries, then all keys, then all values; `by-head` those of a head after those of the one before;
    `by-group` the queries of a group before its key and its value.
    """
    if order == "concatenated":
        q, k = heads.queries * heads.key_size, heads.keys * heads.key_size
        queries, keys, values = rlx.split(x, [q, q + k], axis=-1)
        return queries, keys, values
    groups = heads.queries if order == "by-head" else heads.keys
    grouped = rlx.reshape(x, (*x.shape[:-1], groups, heads.queries // groups + 2, heads.key_size))
    slices = grouped[..., :-2, :], grouped[..., -2, :], grouped[..., -1, :]
    queries, keys, values = (rlx.reshape(each, (*x.shape[:-1], -1)) for each in slices)
    return queries, keys, values
