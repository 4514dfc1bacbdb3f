"""`decoder`: the architecture of a `DecoderSpec` with the sizes of a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_models.architectures.architecture import Architecture, CacheEntry, Decoding, token_spec
from rlx_models.architectures.decoders.attention import AttentionHeads, DecoderAttention, ScoreOptions
from rlx_models.architectures.decoders.layer import DecoderLayer, decoder_layer
from rlx_models.architectures.decoders.norms import apply_norm, norm_shapes
from rlx_models.architectures.decoders.options import SizeOptions, multiplier, softcap
from rlx_models.architectures.decoders.positions import LOCAL, Rotation, alibi_slopes, layer_types, rotations
from rlx_models.architectures.decoders.recurrent import States, StateShape, token_mask, zero_state
from rlx_models.architectures.decoders.spec import DecoderSpec
from rlx_models.checkpoints import Config
from rlx_models.layers.attention import CachedAttention, CausalAttention
from rlx_models.layers.linear import Parameters, dense, linear

UNUSED: Final = (
    "attn.bias",
    "attn.masked_bias",
    "attention.bias",
    "attention.masked_bias",
    "rotary_emb.inv_freq",
    "score.weight",
)
"""Buffers and classifiers, which a decoder does not read."""


@frozen
class LogitsHead:
    """The projection of hidden states to logits.

    Attributes:
        weight, bias: Names of the table f32[vocab_size, features] and the bias.
        multiplier: Of the product and the bias.
        softcap: c in `c·tanh(logits / c)`, after the multiplier.
    """

    weight: str
    bias: str | None = None
    multiplier: float = 1.0
    softcap: float | None = None

    def __call__(self, parameters: Parameters, h: Any) -> Any:
        x = h @ rlx.matrix_transpose(dense(parameters[self.weight]))
        x = x if self.bias is None else x + parameters[self.bias]
        x = x if self.multiplier == 1.0 else x * self.multiplier
        return x if self.softcap is None else rlx.tanh(x / self.softcap) * self.softcap


@frozen(kw_only=True)
class DecoderModel:
    """A decoder of a spec with the sizes of a configuration.

    Attributes:
        vocab_size, embedding_size: The shape of the embedding.
        max_positions: The maximum length of a text, or `None`.
        rotations: The rotation of each layer, or `None` for a layer that does not rotate.
    """

    spec: DecoderSpec
    layer: DecoderLayer
    vocab_size: int
    embedding_size: int
    num_layers: int
    max_positions: int | None
    rotations: tuple[Rotation | None, ...] = field(eq=False)
    scores: ScoreOptions
    logits: LogitsHead

    @property
    def heads(self) -> AttentionHeads:
        latent = self.layer.latent_attention
        return self.layer.heads if latent is None else latent.heads

    @property
    def state(self) -> StateShape | None:
        return None if self.layer.mamba is None else self.layer.mamba.state

    def shapes(self) -> dict[str, tuple[int, ...]]:
        spec, d, embedding = self.spec, self.layer.hidden_size, (self.vocab_size, self.embedding_size)
        shapes: dict[str, tuple[int, ...]] = {f"{spec.embedding}.weight": embedding, self.logits.weight: embedding}
        for name in (spec.embedding_norm, spec.final_norm):
            shapes |= {} if name is None else norm_shapes(spec.norm, name, d)
        if spec.lm_head_bias is not None:
            shapes[spec.lm_head_bias] = (self.vocab_size,)
        if self.embedding_size != d:
            shapes |= {"project_in.weight": (d, self.embedding_size), "project_out.weight": (self.embedding_size, d)}
        if spec.position_table is not None and self.max_positions is not None:
            shapes[f"{spec.position_table.name}.weight"] = (self.max_positions + spec.position_table.offset, d)
        for n in range(self.num_layers):
            shapes |= self.layer.shapes(f"{spec.layer_list}.{n}", n)
        return shapes

    def hidden_states(self, parameters: Parameters, input_ids: Any, attention: DecoderAttention, states: States) -> Any:
        """Return the last hidden states, f32[batch, length, embedding_size]."""
        spec, has_projections = self.spec, self.embedding_size != self.layer.hidden_size
        h = self.layer.scaled("embedding", nn.embedding(input_ids, dense(parameters[f"{spec.embedding}.weight"])))
        h = linear(parameters, "project_in", h) if has_projections else h
        if spec.position_table is not None:
            table = parameters[f"{spec.position_table.name}.weight"]
            h = h + nn.embedding(attention.positions + spec.position_table.offset, table)
        h = self._norm(parameters, spec.embedding_norm, h)
        for n, rotation in enumerate(self.rotations):
            h = self.layer(parameters, f"{spec.layer_list}.{n}", n, h, attention, rotation, states)
        h = self._norm(parameters, spec.final_norm, h)
        return linear(parameters, "project_out", h) if has_projections else h

    def _norm(self, parameters: Parameters, name: str | None, h: Any) -> Any:
        return h if name is None else apply_norm(self.spec.norm, parameters, name, h, self.layer.eps)


def decoder(spec: DecoderSpec, config: Config) -> Architecture:
    """Return the architecture of a spec: input_ids i64[batch, length] -> logits f32[batch, length, vocab_size]."""
    for name, values in spec.required.items():
        config.choice(name, *values, default=values[0])
    sizes = SizeOptions(spec, config)
    hidden_size, num_layers = sizes("hidden_size"), sizes("num_hidden_layers")
    has_positions = spec.rope is not None or spec.position_table is not None
    max_positions = sizes("max_position_embeddings", 2048) if has_positions else None
    layer = decoder_layer(spec, config, sizes)
    lm_head = spec.embedding if config.is_enabled(spec.tie_word_embeddings) else spec.lm_head
    types = layer_types(spec, config, num_layers)
    model = DecoderModel(
        spec=spec,
        layer=layer,
        vocab_size=sizes("vocab_size"),
        embedding_size=hidden_size
        if spec.embedding_size is None
        else config.size(spec.embedding_size.name, hidden_size),
        num_layers=num_layers,
        max_positions=max_positions,
        rotations=tuple(rotations(spec, config, sizes, types, max_positions or 1)),
        scores=_scores(spec, config, layer, types),
        logits=LogitsHead(
            f"{lm_head}.weight",
            spec.lm_head_bias,
            layer.multipliers.get("logits", 1.0),
            softcap(config, spec.logits_softcap),
        ),
    )
    return causal_lm(model, spec.prefix, (*spec.unused, *_prediction_layers(config, spec, num_layers)))


def _scores(spec: DecoderSpec, config: Config, layer: DecoderLayer, types: list[str]) -> ScoreOptions:
    windows: tuple[int | None, ...] = ()
    option = None if spec.window is None else spec.window.size
    if option is not None and config.values.get(option.name, option.default) is not None:
        window = config.size_of(option)
        windows = tuple(window if name == LOCAL else None for name in types)
    latent = layer.latent_attention
    scale = multiplier(config, spec.score_scale) if latent is None else latent.scale
    slopes = alibi_slopes(layer.heads.queries) if spec.has_alibi else None
    return ScoreOptions(windows, scale, softcap(config, spec.score_softcap), slopes)


def _prediction_layers(config: Config, spec: DecoderSpec, num_layers: int) -> tuple[str, ...]:
    """Return the names of layers for multi-token prediction (DeepSeek-V3), which follow the last layer and are not read."""
    count = config.values.get("num_nextn_predict_layers", config.values.get("num_mtp_layers"))
    limited = min(count, num_layers) if isinstance(count, int) else 0
    return tuple(f"{spec.layer_list}.{num_layers + n}." for n in range(limited))


def causal_lm(model: DecoderModel, prefix: str, unused: tuple[str, ...] = ()) -> Architecture:
    """Return the architecture of a decoder: input_ids i64[batch, length] -> logits f32[batch, length, vocab_size].

    Args:
        prefix, unused: See `Architecture`.
    """
    heads, state, count = model.heads, model.state, model.num_layers

    def function(parameters: Parameters, input_ids: Any) -> Any:
        batch, length = input_ids.shape
        attention = DecoderAttention(CausalAttention(length, heads.queries, heads.keys), model.scores)
        states = States(None, ())
        if state is not None:
            states = States(rlx.ones((batch, length, 1)), [zero_state(batch, state)] * count)
        return model.logits(parameters, model.hidden_states(parameters, input_ids, attention, states))

    def cached_hidden_states(
        parameters: Parameters,
        input_ids: Any,
        left_padding: Any,
        cache: Sequence[tuple[Any, ...]],
        cache_position: Any,
    ) -> tuple[Any, list[tuple[Any, ...]]]:
        length = input_ids.shape[1]
        cached = CachedAttention(cache[:count], cache_position, left_padding, length, heads.queries, heads.keys)
        mask = None if state is None else token_mask(cache_position, length, left_padding)
        states = States(mask, cache[count:])
        attention = DecoderAttention(cached, model.scores)
        h = model.hidden_states(parameters, input_ids, attention, states)
        return h, [*cached.updated, *states.after]

    def step(
        parameters: Parameters,
        input_ids: Any,
        left_padding: Any,
        cache: Sequence[tuple[Any, ...]],
        cache_position: Any,
    ) -> tuple[Any, list[tuple[Any, ...]]]:
        h, updated = cached_hidden_states(parameters, input_ids, left_padding, cache, cache_position)
        return model.logits(parameters, h[:, -1]), updated

    def step_selected(
        parameters: Parameters,
        input_ids: Any,
        left_padding: Any,
        cache: Sequence[tuple[Any, ...]],
        cache_position: Any,
        selected: Any,
    ) -> tuple[Any, list[tuple[Any, ...]]]:
        h, updated = cached_hidden_states(parameters, input_ids, left_padding, cache, cache_position)
        return model.logits(parameters, rlx.take_along_axis(h, selected[:, :, None], axis=1)), updated

    entry: CacheEntry = ((None, heads.keys * heads.key_size), (None, heads.keys * heads.value_size))
    cache = (entry,) * count + (() if state is None else (state,) * count)
    shapes = model.shapes()
    unread_head = () if "lm_head.weight" in shapes else ("lm_head.weight",)
    return Architecture(
        shapes,
        prefix,
        (*UNUSED, *unread_head, *unused),
        {"input_ids": token_spec()},
        function,
        Decoding(
            step,
            cache,
            model.max_positions,
            step_selected=step_selected if state is None else None,
            cache_heads=heads.keys,
        ),
    )
