"""ModernBERT: an encoder with rotary positions, gated feed-forward networks, and windows in most of its layers.

Source:
    Warner et al. 2024, "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder", arXiv:2412.13663.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import Fact
from rlx_models.architectures.architecture import Architecture, token_spec
from rlx_models.architectures.bert import UNUSED
from rlx_models.checkpoints import Config
from rlx_models.layers.linear import ACTIVATIONS, Parameters, layer_norm, linear, linear_shapes
from rlx_models.layers.rope import rotary

FULL: Final = "full_attention"
LOCAL: Final = "sliding_attention"


@frozen(kw_only=True)
class ModernBertLayer:
    """A layer with norms of the inputs of sublayers.

    Attributes:
        hidden_size, intermediate_size, num_heads: Sizes.
        act: Activation of the feed-forward network.
        eps: Of the norms.
        has_attention_bias, has_mlp_bias, has_norm_bias: Whether linear layers and norms have biases.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    act: Callable[[Any], Any] = field(eq=False)
    eps: float
    has_attention_bias: bool
    has_mlp_bias: bool
    has_norm_bias: bool

    def shapes(self, prefix: str, *, has_attention_norm: bool) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the layer `prefix`; the first layer has no norm before attention."""
        d, inner = self.hidden_size, self.intermediate_size
        return {
            **linear_shapes(f"{prefix}.attn.Wqkv", 3 * d, d, has_bias=self.has_attention_bias),
            **linear_shapes(f"{prefix}.attn.Wo", d, d, has_bias=self.has_attention_bias),
            **linear_shapes(f"{prefix}.mlp.Wi", 2 * inner, d, has_bias=self.has_mlp_bias),
            **linear_shapes(f"{prefix}.mlp.Wo", d, inner, has_bias=self.has_mlp_bias),
            **self.norm_shapes(f"{prefix}.mlp_norm"),
            **(self.norm_shapes(f"{prefix}.attn_norm") if has_attention_norm else {}),
        }

    def norm_shapes(self, name: str) -> dict[str, tuple[int, ...]]:
        """Return the tensors of a norm."""
        parts = ("weight", "bias") if self.has_norm_bias else ("weight",)
        return {f"{name}.{part}": (self.hidden_size,) for part in parts}

    def __call__(self, parameters: Parameters, prefix: str, h: Any, rope: Callable[[Any], Any], mask: Any) -> Any:
        """Return the layer `prefix` of h f32[batch, length, hidden_size]."""
        has_norm = f"{prefix}.attn_norm.weight" in parameters
        x = layer_norm(parameters, f"{prefix}.attn_norm", h, self.eps) if has_norm else h
        q, k, v = rlx.split(linear(parameters, f"{prefix}.attn.Wqkv", x), 3, axis=-1)
        y = nn.attention(rope(q), rope(k), v, num_heads=self.num_heads, mask=mask)
        h = h + linear(parameters, f"{prefix}.attn.Wo", y)
        x = layer_norm(parameters, f"{prefix}.mlp_norm", h, self.eps)
        up, gate = rlx.split(linear(parameters, f"{prefix}.mlp.Wi", x), 2, axis=-1)
        return h + linear(parameters, f"{prefix}.mlp.Wo", self.act(up) * gate)


@frozen(kw_only=True)
class ModernBertEncoder:
    """The encoder.

    Attributes:
        vocab_size: Rows of the word embedding.
        layer: The settings of all layers.
        layer_types: `full_attention` or `sliding_attention` for each layer.
        ropes: The rotation of each layer type.
        max_distance: Of keys from their query in layers with a window, in both directions.
    """

    vocab_size: int
    layer: ModernBertLayer
    layer_types: tuple[str, ...]
    ropes: Mapping[str, Callable[[Any, Any], Any]] = field(eq=False)
    max_distance: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {
            "embeddings.tok_embeddings.weight": (self.vocab_size, self.layer.hidden_size),
            **self.layer.norm_shapes("embeddings.norm"),
            **self.layer.norm_shapes("final_norm"),
        }
        for n in range(len(self.layer_types)):
            shapes |= self.layer.shapes(f"layers.{n}", has_attention_norm=n > 0)
        return shapes

    def __call__(self, parameters: Parameters, input_ids: Any, attention_mask: Any) -> Any:
        """Return hidden states f32[batch, length, hidden_size]."""
        mask, positions = rlx.not_equal(attention_mask, 0), rlx.arange(input_ids.shape[1])
        is_local = rlx.abs(positions[:, None] - positions[None, :]) <= self.max_distance
        masks = {FULL: mask, LOCAL: rlx.logical_and(mask[:, None, None, :], is_local[None, None])}
        h = nn.embedding(input_ids, parameters["embeddings.tok_embeddings.weight"])
        h = layer_norm(parameters, "embeddings.norm", h, self.layer.eps)
        for n, layer_type in enumerate(self.layer_types):

            def rope(x: Any, layer_type: str = layer_type) -> Any:
                return self.ropes[layer_type](x, positions)

            h = self.layer(parameters, f"layers.{n}", h, rope, masks[layer_type])
        return layer_norm(parameters, "final_norm", h, self.layer.eps)


def modernbert(config: Config) -> Architecture:
    """Return ModernBERT: input_ids and attention_mask i64[batch, length] -> f32[batch, length, hidden_size]."""
    layer = ModernBertLayer(
        hidden_size=config.size("hidden_size"),
        intermediate_size=config.size("intermediate_size"),
        num_heads=config.size("num_attention_heads"),
        act=ACTIVATIONS[config.choice("hidden_activation", *ACTIVATIONS, default="gelu")],
        eps=config.number("norm_eps", 1e-5),
        has_attention_bias=config.flag("attention_bias", False),
        has_mlp_bias=config.flag("mlp_bias", False),
        has_norm_bias=config.flag("norm_bias", False),
    )
    layer_types = _layer_types(config)
    encoder = ModernBertEncoder(
        vocab_size=config.size("vocab_size"),
        layer=layer,
        layer_types=layer_types,
        ropes=_ropes(config, layer_types, layer.hidden_size // layer.num_heads),
        max_distance=config.size("local_attention", 128) // 2,
    )
    inputs = {"input_ids": token_spec(), "attention_mask": token_spec()}
    return Architecture(encoder.shapes(), "model.", (*UNUSED, "head.", "decoder."), inputs, encoder)


def _layer_types(config: Config) -> tuple[str, ...]:
    count, every = config.size("num_hidden_layers"), config.size("global_attn_every_n_layers", 3)
    names = config.values.get("layer_types") or [LOCAL if n % every else FULL for n in range(count)]
    if len(names) != count:
        config.faults.append(Fact("layer_types", f"{len(names)} of them for {count} layers"))
    return tuple(Config({"layer_types": name}, config.faults).choice("layer_types", FULL, LOCAL) for name in names)


def _ropes(config: Config, layer_types: tuple[str, ...], head_size: int) -> dict[str, Callable[[Any, Any], Any]]:
    """Return the rotation of each layer type; older files have the base of each as an option."""
    max_positions = config.size("max_position_embeddings", 8192)
    bases = {FULL: config.number("global_rope_theta", 160000.0), LOCAL: config.number("local_rope_theta", 10000.0)}
    options = config.values.get("rope_parameters") or {}
    return {
        name: rotary(
            Config({"rope_theta": bases[name], **(options.get(name) or {})}, config.faults), head_size, max_positions
        )
        for name in sorted(set(layer_types))
    }
