"""BERT and encoders of its form: RoBERTa, XLM-RoBERTa, DistilBERT, MPNet, ELECTRA, ALBERT. `heads` has their task heads.

Source:
    Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", arXiv:1810.04805.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_models.architectures.architecture import Architecture, token_spec
from rlx_models.checkpoints import Config
from rlx_models.layers.linear import ACTIVATIONS, Parameters, layer_norm, layer_norm_shapes, linear, linear_shapes
from rlx_models.layers.relative_position import relative_position_bias
from rlx_models.layers.transformer import TransformerLayer

UNUSED: Final = (
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
"""Tensors of heads and buffers, which an encoder does not read."""

BERT_NAMES: Final = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "ffn_norm": "output.LayerNorm",
}
DISTILBERT_NAMES: Final = {
    "q": "attention.q_lin",
    "k": "attention.k_lin",
    "v": "attention.v_lin",
    "out": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "up": "ffn.lin1",
    "down": "ffn.lin2",
    "ffn_norm": "output_layer_norm",
}
MPNET_NAMES: Final = {
    **BERT_NAMES,
    "q": "attention.attn.q",
    "k": "attention.attn.k",
    "v": "attention.attn.v",
    "out": "attention.attn.o",
    "attention_norm": "attention.LayerNorm",
}
ALBERT_NAMES: Final = {
    "q": "attention.query",
    "k": "attention.key",
    "v": "attention.value",
    "out": "attention.dense",
    "attention_norm": "attention.LayerNorm",
    "up": "ffn",
    "down": "ffn_output",
    "ffn_norm": "full_layer_layer_norm",
}

RELATIVE_BIAS: Final = "encoder.relative_attention_bias.weight"
MAX_DISTANCE: Final = 128
"""Of MPNet's relative position biases."""


@frozen(kw_only=True)
class BertEncoder:
    """An encoder with learned absolute positions.

    Attributes:
        vocab_size, embedding_size: The shape of the word embedding.
        max_positions: The number of rows of the position table.
        type_vocab_size: The number of token types, of which type 0 is added; `None`: the model has none.
        num_layers, num_heads, layer: The layers.
        layer_name: The prefix of a layer's tensors by its index; layers of equal names share their tensors (ALBERT).
        projection: The linear layer from `embedding_size` to hidden features, if there is one.
        padding_position: The position of padding tokens; other tokens are counted from the next one (RoBERTa). `None`: all tokens
            are counted from 0.
        num_buckets: Buckets of the relative position biases, 0 if there are none (MPNet).
    """

    vocab_size: int
    embedding_size: int
    max_positions: int
    type_vocab_size: int | None
    num_layers: int
    num_heads: int
    layer: TransformerLayer
    layer_name: Callable[[int], str] = field(default="encoder.layer.{}".format, eq=False)
    projection: str | None = None
    padding_position: int | None = None
    num_buckets: int = 0

    def shapes(self) -> dict[str, tuple[int, ...]]:
        width = self.embedding_size
        shapes: dict[str, tuple[int, ...]] = {
            "embeddings.word_embeddings.weight": (self.vocab_size, width),
            "embeddings.position_embeddings.weight": (self.max_positions, width),
            **layer_norm_shapes("embeddings.LayerNorm", width),
        }
        if self.type_vocab_size is not None:
            shapes["embeddings.token_type_embeddings.weight"] = (self.type_vocab_size, width)
        if self.projection is not None:
            shapes |= linear_shapes(self.projection, self.layer.hidden_size, width)
        if self.num_buckets:
            shapes[RELATIVE_BIAS] = (self.num_buckets, self.num_heads)
        for n in range(self.num_layers):
            shapes |= self.layer.shapes(self.layer_name(n))
        return shapes

    def __call__(self, parameters: Parameters, input_ids: Any, attention_mask: Any) -> Any:
        """Return hidden states f32[batch, length, hidden_size]."""
        mask = rlx.not_equal(attention_mask, 0)
        h = self._embed(parameters, input_ids, mask)
        bias = None
        if self.num_buckets:
            positions = rlx.arange(input_ids.shape[1])
            table = parameters[RELATIVE_BIAS]
            bias = relative_position_bias(table, MAX_DISTANCE, positions, positions, is_causal=False)
        attention = partial(nn.attention, num_heads=self.num_heads, mask=mask, bias=bias)
        for n in range(self.num_layers):
            h = self.layer(parameters, self.layer_name(n), h, attention)
        return h

    def _embed(self, parameters: Parameters, input_ids: Any, mask: Any) -> Any:
        table = parameters["embeddings.position_embeddings.weight"]
        h = nn.embedding(input_ids, parameters["embeddings.word_embeddings.weight"])
        if self.padding_position is None:
            h = h + table[: input_ids.shape[1]]
        else:
            counts = rlx.astype(rlx.cumulative_sum(rlx.astype(mask, rlx.i64), axis=1), rlx.i64)
            positions = rlx.where(mask, counts + self.padding_position, self.padding_position)
            h = h + nn.embedding(positions, table)
        if self.type_vocab_size is not None:
            h = h + parameters["embeddings.token_type_embeddings.weight"][0]
        h = layer_norm(parameters, "embeddings.LayerNorm", h, self.layer.eps)
        return h if self.projection is None else linear(parameters, self.projection, h)


def bert(config: Config) -> Architecture:
    """Return BERT: input_ids and attention_mask i64[batch, length] -> f32[batch, length, hidden_size]."""
    return _architecture(config, "bert.", BERT_NAMES)


def electra(config: Config) -> Architecture:
    """Return ELECTRA, whose embeddings may be narrower than its layers."""
    width = config.size("embedding_size", 128)
    projection = None if width == config.size("hidden_size") else "embeddings_project"
    return _architecture(config, "electra.", BERT_NAMES, embedding_size=width, projection=projection)


def albert(config: Config) -> Architecture:
    """Return ALBERT, with narrower embeddings, and layers that share their tensors in groups."""
    count, groups = config.size("num_hidden_layers"), config.size("num_hidden_groups", 1)
    config.choice("inner_group_num", 1, default=1)
    return _architecture(
        Config({"hidden_act": "gelu_new", **config.values}, config.faults),
        "albert.",
        ALBERT_NAMES,
        embedding_size=config.size("embedding_size", 128),
        projection="encoder.embedding_hidden_mapping_in",
        layer_name=lambda n: f"encoder.albert_layer_groups.{n * groups // count}.albert_layers.0",
    )


def roberta(config: Config) -> Architecture:
    """Return RoBERTa or XLM-RoBERTa, whose positions are counted from that of padding."""
    return _architecture(config, "roberta.", BERT_NAMES, padding_position=int(config.number("pad_token_id", 1)))


def mpnet(config: Config) -> Architecture:
    """Return MPNet, with the positions of RoBERTa and relative position biases.

    Source:
        Song et al. 2020, "MPNet: Masked and Permuted Pre-training for Language Understanding", arXiv:2004.09297.
    """
    num_buckets = config.size("relative_attention_num_buckets")
    without_types = Config({**config.values, "type_vocab_size": None}, config.faults)
    return _architecture(without_types, "mpnet.", MPNET_NAMES, padding_position=1, num_buckets=num_buckets)


def distilbert(config: Config) -> Architecture:
    """Return DistilBERT, without token types, and with other names of options and tensors."""
    renamed = {
        "hidden_size": config.values.get("dim"),
        "intermediate_size": config.values.get("hidden_dim"),
        "num_attention_heads": config.values.get("n_heads"),
        "num_hidden_layers": config.values.get("n_layers"),
        "hidden_act": config.values.get("activation", "gelu"),
        "type_vocab_size": None,
    }
    renamed_config = Config({**config.values, **renamed}, config.faults)
    return _architecture(renamed_config, "distilbert.", DISTILBERT_NAMES, layer_name="transformer.layer.{}".format)


def _architecture(config: Config, prefix: str, names: Mapping[str, str], **settings: Any) -> Architecture:
    """Return an encoder; `settings` are fields of `BertEncoder`."""
    hidden_size = config.size("hidden_size")
    config.choice("position_embedding_type", "absolute", default="absolute")
    has_types = config.values.get("type_vocab_size") is not None
    layer = TransformerLayer(
        names=names,
        hidden_size=hidden_size,
        intermediate_size=config.size("intermediate_size"),
        act=ACTIVATIONS[config.choice("hidden_act", *ACTIVATIONS, default="gelu")],
        eps=config.number("layer_norm_eps", 1e-12),
        norm="post",
    )
    encoder = BertEncoder(
        vocab_size=config.size("vocab_size"),
        max_positions=config.size("max_position_embeddings"),
        type_vocab_size=config.size("type_vocab_size") if has_types else None,
        num_layers=config.size("num_hidden_layers"),
        num_heads=config.size("num_attention_heads"),
        layer=layer,
        **{"embedding_size": hidden_size, **settings},
    )
    inputs = {"input_ids": token_spec(), "attention_mask": token_spec()}
    return Architecture(encoder.shapes(), prefix, UNUSED, inputs, encoder)
