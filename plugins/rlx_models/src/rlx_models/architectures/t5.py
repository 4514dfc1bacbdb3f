"""T5 and mT5: an encoder and a decoder with relative position biases.

Source:
    Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", arXiv:1910.10683.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_models.architectures.architecture import Architecture, token_spec
from rlx_models.architectures.encoder_decoder import DecoderSize, Encoded, cross_attention, encoder_decoder
from rlx_models.checkpoints import Config
from rlx_models.layers.attention import CausalSelfAttention
from rlx_models.layers.linear import ACTIVATIONS, Parameters, linear
from rlx_models.layers.relative_position import relative_position_bias
from rlx_models.layers.transformer import Attention, CrossAttention

UNUSED: Final = (
    "encoder.embed_tokens.",
    "decoder.embed_tokens.",
    "EncDecAttention.relative_attention_bias.weight",
)

FEED_FORWARD_ACTIVATIONS: Final = {
    "relu": "relu",
    "gated-gelu": "gelu_new",
    "gated-relu": "relu",
    "gated-silu": "silu",
}
"""Activations of the feed-forward networks by `feed_forward_proj`."""

ENCODER_CLASSES: Final = (["T5EncoderModel"], ["MT5EncoderModel"])


@frozen(kw_only=True)
class T5Layer:
    """A layer: attention without scaling, cross-attention in decoders, and a feed-forward network, each with an RMS norm."""

    d_model: int
    d_ff: int
    d_attention: int
    act: Callable[[Any], Any] = field(eq=False)
    is_gated: bool
    eps: float
    has_cross_attention: bool

    @property
    def sublayers(self) -> tuple[str, ...]:
        """Names of the sublayers; a name in a checkpoint begins with the sublayer's index."""
        cross = ("EncDecAttention",) if self.has_cross_attention else ()
        return ("SelfAttention", *cross, "DenseReluDense")

    @property
    def up_projections(self) -> tuple[str, ...]:
        """Names of the input projections of the feed-forward network."""
        return ("wi_0", "wi_1") if self.is_gated else ("wi",)

    def shapes(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the layer `prefix`."""
        shapes: dict[str, tuple[int, ...]] = {}
        for n, sublayer in enumerate(self.sublayers):
            name = f"{prefix}.{n}.{sublayer}"
            shapes[f"{prefix}.{n}.layer_norm.weight"] = (self.d_model,)
            if sublayer == "DenseReluDense":
                shapes |= {f"{name}.{part}.weight": (self.d_ff, self.d_model) for part in self.up_projections}
                shapes[f"{name}.wo.weight"] = (self.d_model, self.d_ff)
            else:
                shapes |= {f"{name}.{part}.weight": (self.d_attention, self.d_model) for part in "qkv"}
                shapes[f"{name}.o.weight"] = (self.d_model, self.d_attention)
        return shapes

    def __call__(
        self, parameters: Parameters, prefix: str, h: Any, attention: Attention, cross: CrossAttention | None
    ) -> Any:
        """Return the layer `prefix` of h f32[batch, length, d_model]."""
        for n, sublayer in enumerate(self.sublayers):
            project = partial(_project, parameters, f"{prefix}.{n}.{sublayer}")
            x = nn.rms_norm(h, parameters[f"{prefix}.{n}.layer_norm.weight"], eps=self.eps)
            if sublayer == "SelfAttention":
                y = project("o", attention(*(project(part, x) for part in "qkv")))
            elif sublayer == "EncDecAttention":
                assert cross is not None, "layers of the decoder have cross-attention"
                y = project("o", cross(project("q", x)))
            else:
                first, *gate = (project(part, x) for part in self.up_projections)
                y = project("wo", self.act(first) * gate[0] if gate else self.act(first))
            h = h + y
        return h


def _project(parameters: Parameters, prefix: str, part: str, x: Any) -> Any:
    return linear(parameters, f"{prefix}.{part}", x)


@frozen(kw_only=True)
class T5:
    """The stacks of T5.

    Attributes:
        vocab_size, d_model: The shape of the embedding.
        num_heads, d_kv: Heads of attention, and features of a head.
        num_layers: The number of layers of `encoder` and, if there is one, `decoder`.
        layers: A layer of each stack.
        eps: Of the norms.
        num_buckets, max_distance: See `relative_position_bias`.
        scales_logits: Whether hidden states are scaled by 1/√d_model before the logits.
    """

    vocab_size: int
    d_model: int
    num_heads: int
    d_kv: int
    num_layers: Mapping[str, int]
    layers: Mapping[str, T5Layer]
    eps: float
    num_buckets: int
    max_distance: int
    scales_logits: bool

    @property
    def decoder_size(self) -> DecoderSize:
        return DecoderSize(self.num_layers["decoder"], self.num_heads, self.num_heads * self.d_kv)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {"shared.weight": (self.vocab_size, self.d_model)}
        if "decoder" in self.num_layers:
            shapes["lm_head.weight"] = (self.vocab_size, self.d_model)
        for stack, count in self.num_layers.items():
            shapes[f"{stack}.final_layer_norm.weight"] = (self.d_model,)
            shapes[bias_name(stack)] = (self.num_buckets, self.num_heads)
            for n in range(count):
                shapes |= self.layers[stack].shapes(f"{stack}.block.{n}.layer")
        return shapes

    def encode(self, parameters: Parameters, input_ids: Any, attention_mask: Any) -> Any:
        positions, mask = rlx.arange(input_ids.shape[1]), rlx.not_equal(attention_mask, 0)
        bias = self._bias(parameters, "encoder", positions, positions)
        attention = partial(nn.attention, num_heads=self.num_heads, mask=mask, bias=bias, scale=1.0)
        h = nn.embedding(input_ids, parameters["shared.weight"])
        for n in range(self.num_layers["encoder"]):
            h = self.layers["encoder"](parameters, f"encoder.block.{n}.layer", h, attention, None)
        return self._final_norm(parameters, "encoder", h)

    def encode_for_decoder(self, parameters: Parameters, input_ids: Any, attention_mask: Any) -> Encoded:
        h = self.encode(parameters, input_ids, attention_mask)
        prefixes = (f"decoder.block.{n}.layer.1.EncDecAttention" for n in range(self.num_layers["decoder"]))
        pairs = [(linear(parameters, f"{name}.k", h), linear(parameters, f"{name}.v", h)) for name in prefixes]
        return pairs, rlx.not_equal(attention_mask, 0)

    def decode(self, parameters: Parameters, input_ids: Any, attention: CausalSelfAttention, encoded: Encoded) -> Any:
        bias = self._bias(parameters, "decoder", attention.query_positions, attention.key_positions)
        h = nn.embedding(input_ids, parameters["shared.weight"])
        for n in range(self.num_layers["decoder"]):
            self_attention = partial(attention, n, bias=bias, scale=1.0)
            cross = cross_attention(encoded, n, num_heads=self.num_heads, scale=1.0)
            h = self.layers["decoder"](parameters, f"decoder.block.{n}.layer", h, self_attention, cross)
        return self._final_norm(parameters, "decoder", h)

    def logits(self, parameters: Parameters, h: Any) -> Any:
        head = "lm_head.weight" if "lm_head.weight" in parameters else "shared.weight"
        return (h * self.d_model**-0.5 if self.scales_logits else h) @ rlx.matrix_transpose(parameters[head])

    def _bias(self, parameters: Parameters, stack: str, query_positions: Any, key_positions: Any) -> Any:
        table, is_causal = parameters[bias_name(stack)], stack == "decoder"
        return relative_position_bias(table, self.max_distance, query_positions, key_positions, is_causal=is_causal)

    def _final_norm(self, parameters: Parameters, stack: str, h: Any) -> Any:
        return nn.rms_norm(h, parameters[f"{stack}.final_layer_norm.weight"], eps=self.eps)


def bias_name(stack: str) -> str:
    """Return the name of the relative position biases, which the first layer has for all."""
    return f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"


def t5(config: Config) -> Architecture:
    """Return T5: input_ids and attention_mask i64[batch, length], decoder_input_ids i64[batch, steps] -> logits
    f32[batch, steps, vocab_size].

    An encoder (`T5EncoderModel`) takes input_ids and attention_mask and returns f32[batch, length, d_model].
    """
    model = _settings(config)
    tokens = {"input_ids": token_spec(), "attention_mask": token_spec()}
    if "decoder" not in model.num_layers:
        return Architecture(model.shapes(), "", UNUSED, tokens, model.encode)
    start = int(config.number("decoder_start_token_id", config.number("pad_token_id", 0)))
    return encoder_decoder(
        model,
        "",
        UNUSED,
        tokens,
        {"decoder_input_ids": token_spec(length="steps")},
        max_positions=None,
        start_token_id=start,
        optional=("lm_head.weight",),
    )


def _settings(config: Config) -> T5:
    d_model, d_ff, num_heads, d_kv = (config.size(name) for name in ("d_model", "d_ff", "num_heads", "d_kv"))
    num_layers = {"encoder": config.size("num_layers")}
    if config.values.get("architectures") not in ENCODER_CLASSES:
        num_layers["decoder"] = config.size("num_decoder_layers", num_layers["encoder"])
    eps, is_mt5 = config.number("layer_norm_epsilon", 1e-6), config.values.get("model_type") == "mt5"
    feed_forward = config.choice(
        "feed_forward_proj", *FEED_FORWARD_ACTIVATIONS, default="gated-gelu" if is_mt5 else "relu"
    )
    layers = {
        stack: T5Layer(
            d_model=d_model,
            d_ff=d_ff,
            d_attention=num_heads * d_kv,
            act=ACTIVATIONS[FEED_FORWARD_ACTIVATIONS[feed_forward]],
            is_gated=feed_forward.startswith("gated"),
            eps=eps,
            has_cross_attention=stack == "decoder",
        )
        for stack in num_layers
    }
    return T5(
        vocab_size=config.size("vocab_size"),
        d_model=d_model,
        num_heads=num_heads,
        d_kv=d_kv,
        num_layers=num_layers,
        layers=layers,
        eps=eps,
        num_buckets=config.size("relative_attention_num_buckets", 32),
        max_distance=config.size("relative_attention_max_distance", 128),
        # Models that were trained with a separate head are not scaled; newer files have an option for it.
        scales_logits=not is_mt5 and config.flag("scale_decoder_outputs", config.flag("tie_word_embeddings", True)),
    )
