"""BERT and what has its form: encoders of texts. The pooler and heads of a checkpoint are left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_models.layers.transformer import Block
from rlx_models.layers.relative_position import bias
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import ACTIVATIONS, Architecture, Parameters, layer_shapes, linear, norm, norm_shapes

__all__ = ["BERT", "UNUSED", "albert", "bert", "distilbert", "electra", "mpnet", "roberta"]

UNUSED = (
    "pooler.",
    "cls.",
    "classifier.",
    "lm_head.",
    "qa_outputs.",
    "vocab_",
    "pre_classifier.",
    "position_ids",
    "token_type_ids",
    "predictions.",
    "sop_classifier.",
    "discriminator_predictions.",
    "generator_predictions.",
    "generator_lm_head.",
)

BERT = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "out": "attention.output.dense",
    "norm_a": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm_b": "output.LayerNorm",
}
DISTILBERT = {
    "q": "attention.q_lin",
    "k": "attention.k_lin",
    "v": "attention.v_lin",
    "out": "attention.out_lin",
    "norm_a": "sa_layer_norm",
    "up": "ffn.lin1",
    "down": "ffn.lin2",
    "norm_b": "output_layer_norm",
}
MPNET = {
    **BERT,
    "q": "attention.attn.q",
    "k": "attention.attn.k",
    "v": "attention.attn.v",
    "out": "attention.attn.o",
    "norm_a": "attention.LayerNorm",
}
ALBERT = {
    "q": "attention.query",
    "k": "attention.key",
    "v": "attention.value",
    "out": "attention.dense",
    "norm_a": "attention.LayerNorm",
    "up": "ffn",
    "down": "ffn_output",
    "norm_b": "full_layer_layer_norm",
}
"""What the parts of a layer are called."""

LAYER = "encoder.layer.{}".format

BIAS = "encoder.relative_attention_bias.weight"
REACH = 128


def bert(config: Config) -> Architecture:
    """Encoders of `model_type` bert."""
    return encoder(config, "bert.", BERT, config.size("hidden_size"), config.size("intermediate_size"))


def electra(config: Config) -> Architecture:
    """ELECTRA: embeddings may be narrower than layers."""
    d, inner, width = config.size("hidden_size"), config.size("intermediate_size"), config.size("embedding_size", 128)
    widened = "" if width == d else "embeddings_project"
    return encoder(config, "electra.", BERT, d, inner, width=width, widened=widened)


def albert(config: Config) -> Architecture:
    """ALBERT: narrower embeddings, and layers that share their tensors, in groups."""
    d, inner, count = (config.size(name) for name in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    groups = config.size("num_hidden_groups", 1)
    config.known("inner_group_num", 1, default=1)
    usual = Config({"hidden_act": "gelu_new", **config.rows}, config.faults)
    return encoder(
        usual, "albert.", ALBERT, d, inner,
        width=config.size("embedding_size", 128),
        widened="encoder.embedding_hidden_mapping_in",
        layer=lambda n: f"encoder.albert_layer_groups.{n * groups // count}.albert_layers.0",
    )  # fmt: skip


def roberta(config: Config) -> Architecture:
    """RoBERTa and its kin: positions begin behind that of the padding."""
    first = int(config.number("pad_token_id", 1)) + 1
    return encoder(config, "roberta.", BERT, config.size("hidden_size"), config.size("intermediate_size"), first=first)


def mpnet(config: Config) -> Architecture:
    """MPNet: positions as RoBERTa's, and biases by distance."""
    d, inner, kinds = (config.size(n) for n in ("hidden_size", "intermediate_size", "relative_attention_num_buckets"))
    renamed = Config({**config.rows, "type_vocab_size": None}, config.faults)
    return encoder(renamed, "mpnet.", MPNET, d, inner, first=2, kinds_of_distance=kinds)


def distilbert(config: Config) -> Architecture:
    """DistilBERT: without kinds of tokens, and with other names."""
    said = {
        "num_attention_heads": config.rows.get("n_heads"),
        "num_hidden_layers": config.rows.get("n_layers"),
        "hidden_act": config.rows.get("activation", "gelu"),
        "type_vocab_size": None,
    }
    renamed = Config({**config.rows, **said}, config.faults)
    return encoder(
        renamed,
        "distilbert.",
        DISTILBERT,
        config.size("dim"),
        config.size("hidden_dim"),
        layer="transformer.layer.{}".format,
    )


def encoder(
    config: Config,
    prefix: str,
    names: dict[str, str],
    d: int,
    inner: int,
    *,
    first: int = 0,
    kinds_of_distance: int = 0,
    width: int | None = None,
    widened: str = "",
    layer: Callable[[int], str] = LAYER,
) -> Architecture:
    """ids i64[batch, length], mask i64[batch, length] (0 for padding) -> f32[batch, length, d].

    Args:
        names: What the parts of a layer are called.
        d, inner: Features between layers, and within one.
        first: The row of the first token in the table of positions, where padding is not counted; 0 where it is.
        kinds_of_distance: Of biases by distance.
        width: Features of embeddings, and what `widened` makes `d` of them; by default `d`.
        layer: The place of a layer's tensors by its number.
    """
    heads, layers = config.size("num_attention_heads"), config.size("num_hidden_layers")
    config.known("position_embedding_type", "absolute", default="absolute")
    room, width = config.size("max_position_embeddings"), width or d
    block = Block(
        names=names,
        d=d,
        inner=inner,
        act=ACTIVATIONS[config.known("hidden_act", *ACTIVATIONS, default="gelu")],
        eps=config.number("layer_norm_eps", 1e-12),
        norms="behind",
    )
    kinds = None if config.rows.get("type_vocab_size") is None else config.size("type_vocab_size")
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config.size("vocab_size"), width),
        "embeddings.position_embeddings.weight": (room, width),
        **norm_shapes("embeddings.LayerNorm", width),
        **({} if kinds is None else {"embeddings.token_type_embeddings.weight": (kinds, width)}),
        **(layer_shapes(widened, d, width) if widened else {}),
    }
    if kinds_of_distance:
        shapes[BIAS] = (kinds_of_distance, heads)
    for n in range(layers):
        shapes |= block.shapes(layer(n))

    def function(parameters: Parameters, ids: Any, mask: Any) -> Any:
        real = rlx.not_equal(mask, 0)
        positions = parameters["embeddings.position_embeddings.weight"]
        h = nn.embedding(ids, parameters["embeddings.word_embeddings.weight"])
        if first:  # counted over what is no padding
            counts = rlx.astype(rlx.cumulative_sum(rlx.astype(real, rlx.i64), axis=1), rlx.i64)
            h = h + nn.embedding(rlx.where(real, counts + (first - 1), first - 1), positions)
        else:
            h = h + positions[: ids.shape[1]]
        if kinds is not None:
            h = h + parameters["embeddings.token_type_embeddings.weight"][0]
        h = norm(parameters, "embeddings.LayerNorm", h, block.eps)
        if f"{widened}.weight" in parameters:
            h = linear(parameters, widened, h)
        places = rlx.arange(ids.shape[1])
        biases = bias(parameters[BIAS], REACH, places, places, is_causal=False) if kinds_of_distance else None
        for n in range(layers):
            h = block(
                parameters, layer(n), h, lambda q, k, v: nn.attention(q, k, v, num_heads=heads, mask=real, bias=biases)
            )
        return h

    spec = rlx.spec("i64[batch, length]")
    return Architecture(shapes, prefix, UNUSED, {"ids": spec, "mask": spec}, function)
