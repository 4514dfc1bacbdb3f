"""`decoder_of`: from a `DecoderKind` and a configuration to the architecture."""

from __future__ import annotations

from typing import Any

from rlx_core import nn
from rlx_models.architectures.decoders.programs import DecoderAttention, LogitsHead, ScoreOptions, States, decoder
from rlx_models.architectures.decoders.spec import DecoderKind
from rlx_models.architectures.decoders.layer import Layer, layer_of
from rlx_models.architectures.decoders.norms import norm_shapes, normed
from rlx_models.architectures.decoders.options import SizeOptions, cap, factor_of
from rlx_models.architectures.decoders.positions import NEAR, layer_types, rotations, slopes
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import Architecture, Parameters, linear

__all__ = ["decoder_of"]


def decoder_of(kind: DecoderKind, config: Config) -> Architecture:
    """Return the architecture of a row: ids i64[batch, length] -> logits f32[batch, length, words]."""
    for name, known in kind.expected.items():
        config.known(name, *known, default=known[0])
    size = SizeOptions(kind, config)
    d, words, count = size("hidden_size"), size("vocab_size"), size("num_hidden_layers")
    width = d if kind.embed_size is None else config.size(kind.embed_size.name, d)
    positions = None if kind.rope is None and kind.learned is None else size("max_position_embeddings", 2048)
    layer = layer_of(kind, config, size)
    is_tied = config.option(kind.tied)
    head_name = f"{kind.embed if is_tied else kind.head}.weight"
    shapes: dict[str, tuple[int, ...]] = {f"{kind.embed}.weight": (words, width), head_name: (words, width)}
    for each in (kind.first, kind.last):
        shapes |= {} if each is None else norm_shapes(kind.norm, each, (d,))
    shapes |= {} if kind.head_bias is None else {kind.head_bias: (words,)}
    if width != d:
        shapes |= {"project_in.weight": (d, width), "project_out.weight": (width, d)}
    if kind.learned is not None and positions is not None:
        shapes[f"{kind.learned.name}.weight"] = (positions + kind.learned.first, d)
    for n in range(count):
        shapes |= layer.shapes(f"{kind.stack}.{n}", n)
    eps = config.number(kind.norm.eps.name, kind.norm.eps.default)
    types = layer_types(kind, config, count)
    turns = [None] * count if kind.rope is None or kind.latent else rotations(kind, config, size, types, positions or 1)

    def layers(parameters: Parameters, ids: Any, places: Any, attend: DecoderAttention, states: States) -> Any:
        h = layer.scaled("embed", nn.embedding(ids, parameters[f"{kind.embed}.weight"]))
        h = h if width == d else linear(parameters, "project_in", h)
        if kind.learned is not None:
            h = h + nn.embedding(places + kind.learned.first, parameters[f"{kind.learned.name}.weight"])
        h = h if kind.first is None else normed(kind.norm, parameters, kind.first, h, eps)
        for n in range(count):
            h = layer(parameters, f"{kind.stack}.{n}", n, h, places, attend, turns[n], states)
        h = h if kind.last is None else normed(kind.norm, parameters, kind.last, h, eps)
        return h if width == d else linear(parameters, "project_out", h)

    return decoder(
        shapes,
        kind.prefix,
        layers,
        LogitsHead(
            head_name,
            kind.head_bias,
            layer.factors.get("logits", 1.0),
            cap(config, kind.logits_cap),
        ),
        layer.heads if layer.latent is None else layer.latent.heads,
        count=count,
        positions=positions,
        scores=_scores(kind, config, layer, types, size),
        state=None if layer.mixer is None else layer.mixer.pair,
        unused=(*kind.unused, *_predictors(config, kind, count)),
    )


def _scores(kind: DecoderKind, config: Config, layer: Layer, types: list[str], size: SizeOptions) -> ScoreOptions:
    windows: tuple[int | None, ...] = ()
    option = None if kind.window is None else kind.window.size
    if option is not None and config.rows.get(option.name, option.default) is not None:
        window = config.size(option.name, option.default)
        windows = tuple(window if each == NEAR else None for each in types)
    scale = factor_of(config, kind.scale) if layer.latent is None else layer.latent.scale
    costs = slopes(size("num_attention_heads")) if kind.has_slopes else None
    return ScoreOptions(windows, scale, cap(config, kind.cap), costs)


def _predictors(config: Config, kind: DecoderKind, count: int) -> tuple[str, ...]:
    """Return the names of layers behind the last that predict tokens further on (DeepSeek-V3), which are not read."""
    further = config.rows.get("num_nextn_predict_layers", config.rows.get("num_mtp_layers"))
    most = min(further, count) if isinstance(further, int) else 0
    return tuple(f"{kind.stack}.{count + n}." for n in range(most))
