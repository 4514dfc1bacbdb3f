"""BERT and what has its form: encoders of texts. The pooler and heads of a checkpoint are left out."""

from __future__ import annotations

from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_torch.pretrained.distances import bias
from rlx_torch.pretrained.folder import Config
from rlx_torch.pretrained.parts import ACTIVATIONS, Architecture, Parameters, linear, norm, norm_shapes

__all__ = ["bert", "distilbert", "mpnet", "roberta"]

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
)

BERT = {
    "layer": "encoder.layer.{}",
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
    "layer": "transformer.layer.{}",
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
"""What the parts of a layer are called."""

BIAS = "encoder.relative_attention_bias.weight"
REACH = 128


def bert(config: Config) -> Architecture:
    """Encoders of `model_type` bert."""
    return encoder(config, "bert.", BERT, config.size("hidden_size"), config.size("intermediate_size"), first=0)


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
    return encoder(renamed, "distilbert.", DISTILBERT, config.size("dim"), config.size("hidden_dim"), first=0)


def encoder(
    config: Config, prefix: str, names: dict[str, str], d: int, inner: int, *, first: int, kinds_of_distance: int = 0
) -> Architecture:
    """ids i64[batch, length], mask i64[batch, length] (0 for padding) -> f32[batch, length, d]."""
    heads, layers = config.size("num_attention_heads"), config.size("num_hidden_layers")
    act = ACTIVATIONS[config.known("hidden_act", *ACTIVATIONS, default="gelu")]
    config.known("position_embedding_type", "absolute", default="absolute")
    eps, room = config.number("layer_norm_eps", 1e-12), config.size("max_position_embeddings")
    kinds = None if config.rows.get("type_vocab_size") is None else config.size("type_vocab_size")
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config.size("vocab_size"), d),
        "embeddings.position_embeddings.weight": (room, d),
        **norm_shapes("embeddings.LayerNorm", d),
        **({} if kinds is None else {"embeddings.token_type_embeddings.weight": (kinds, d)}),
    }
    if kinds_of_distance:
        shapes[BIAS] = (kinds_of_distance, heads)
    for n in range(layers):
        place = names["layer"].format(n)
        for part, (outputs, inputs) in {
            **dict.fromkeys(("q", "k", "v", "out"), (d, d)),
            "up": (inner, d),
            "down": (d, inner),
        }.items():
            shapes |= {f"{place}.{names[part]}.weight": (outputs, inputs), f"{place}.{names[part]}.bias": (outputs,)}
        shapes |= norm_shapes(f"{place}.{names['norm_a']}", d) | norm_shapes(f"{place}.{names['norm_b']}", d)

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
        h = norm(parameters, "embeddings.LayerNorm", h, eps)
        places = rlx.arange(ids.shape[1])
        biases = bias(parameters[BIAS], REACH, places, places, is_causal=False) if kinds_of_distance else None
        for n in range(layers):
            at = {part: f"{names['layer'].format(n)}.{name}" for part, name in names.items() if part != "layer"}
            q, k, v = (linear(parameters, at[part], h) for part in "qkv")
            seen = nn.attention(q, k, v, num_heads=heads, mask=real, bias=biases)
            h = norm(parameters, at["norm_a"], h + linear(parameters, at["out"], seen), eps)
            h = norm(
                parameters, at["norm_b"], h + linear(parameters, at["down"], act(linear(parameters, at["up"], h))), eps
            )
        return h

    spec = rlx.spec("i64[batch, length]")
    return Architecture(shapes, prefix, UNUSED, {"ids": spec, "mask": spec}, function)
