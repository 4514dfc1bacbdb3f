"""DeBERTa v2 and v3: an encoder with disentangled attention to contents and relative positions.

Source:
    He, Liu, Gao, Chen 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", arXiv:2006.03654, section 3.1; He,
    Gao, Chen 2021, "DeBERTaV3", arXiv:2111.09543.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import Fact
from rlx_models.architectures.architecture import Architecture, token_spec
from rlx_models.architectures.bert import BERT_NAMES, UNUSED
from rlx_models.checkpoints import Config
from rlx_models.layers.linear import ACTIVATIONS, Parameters, layer_norm, layer_norm_shapes, linear, linear_shapes
from rlx_models.layers.transformer import TransformerLayer

DEBERTA_NAMES: Final = {
    **BERT_NAMES,
    "q": "attention.self.query_proj",
    "k": "attention.self.key_proj",
    "v": "attention.self.value_proj",
}

POSITION_PROJECTIONS: Final = {"c2p": "attention.self.pos_key_proj", "p2c": "attention.self.pos_query_proj"}
"""Projections of relative positions to keys (content to position) and to queries (position to content)."""


@frozen(kw_only=True)
class DisentangledAttention:
    """Attention whose scores add content-to-position and position-to-content terms to those of contents.

    Attributes:
        num_heads: Heads.
        scale: The multiplier of scores and of both terms.
        terms: `c2p`, `p2c` or both.
        shares_projections: Whether relative positions are projected by the layers of queries and keys.
    """

    num_heads: int
    scale: float
    terms: tuple[str, ...]
    shares_projections: bool

    def shapes(self, prefix: str, hidden_size: int) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the layer `prefix` in addition to those of a transformer layer."""
        shapes: dict[str, tuple[int, ...]] = {}
        for term in () if self.shares_projections else self.terms:
            if term in POSITION_PROJECTIONS:
                shapes |= linear_shapes(f"{prefix}.{POSITION_PROJECTIONS[term]}", hidden_size, hidden_size)
        return shapes

    def __call__(
        self, q: Any, k: Any, v: Any, *, parameters: Parameters, prefix: str, table: Any, rows: Any, mask: Any
    ) -> Any:
        """Return the attention of the layer `prefix`.

        Args:
            table: Embeddings of relative positions, f32[rows, hidden_size].
            rows: The row of the table for each query and key, i64[length, length].
            mask: bool[batch, length] of keys.
        """
        bias = self._bias(parameters, prefix, q, k, table, rows) if self.terms else None
        return nn.attention(q, k, v, num_heads=self.num_heads, mask=mask, bias=bias, scale=self.scale)

    def _bias(self, parameters: Parameters, prefix: str, q: Any, k: Any, table: Any, rows: Any) -> Any:
        """Return the terms of relative positions, f32[batch, heads, queries, keys]."""
        bias: Any = 0.0
        for term in self.terms:
            is_c2p = term == "c2p"
            name = DEBERTA_NAMES["k" if is_c2p else "q"] if self.shares_projections else POSITION_PROJECTIONS[term]
            positions = self._split_heads(linear(parameters, f"{prefix}.{name}", table))
            scores = self._split_heads(q if is_c2p else k) @ rlx.matrix_transpose(positions)
            # Position to content: `scores` has a row for each key, so the distances and the result are transposed.
            index = (rows if is_c2p else rlx.matrix_transpose(rows))[None, None]
            values = rlx.take_along_axis(scores, index, axis=-1)
            bias = bias + (values if is_c2p else rlx.matrix_transpose(values))
        return bias * self.scale

    def _split_heads(self, x: Any) -> Any:
        return rlx.moveaxis(rlx.reshape(x, (*x.shape[:-1], self.num_heads, -1)), -2, -3)


@frozen(kw_only=True)
class ConvolutionLayer:
    """A convolution over the embeddings, added to the output of the first layer (DeBERTa v2 XLarge)."""

    kernel_size: int
    act: Callable[[Any], Any] = field(eq=False)
    eps: float

    def shapes(self, hidden_size: int) -> dict[str, tuple[int, ...]]:
        return {
            "encoder.conv.conv.weight": (hidden_size, hidden_size, self.kernel_size),
            "encoder.conv.conv.bias": (hidden_size,),
            **layer_norm_shapes("encoder.conv.LayerNorm", hidden_size),
        }

    def __call__(self, parameters: Parameters, embeddings: Any, h: Any, mask: Any) -> Any:
        """Return the sum; `mask` f32[batch, length, 1] is 0 for padding."""
        weight, bias = (parameters[f"encoder.conv.conv.{name}"] for name in ("weight", "bias"))
        y = nn.conv(rlx.matrix_transpose(embeddings), weight, bias, padding=(self.kernel_size - 1) // 2)
        y = self.act(rlx.matrix_transpose(y) * mask)
        return layer_norm(parameters, "encoder.conv.LayerNorm", h + y, self.eps) * mask


@frozen(kw_only=True)
class RelativePositions:
    """The table of relative positions.

    Attributes:
        span: Half of its rows.
        max_distance: All larger distances have one row.
        has_buckets: Whether large distances share rows by their logarithm.
        has_norm: Whether the table has a layer norm.
    """

    span: int
    max_distance: int
    has_buckets: bool
    has_norm: bool

    def rows(self, length: Any) -> Any:
        """Return the row of each query and key, i64[length, length]."""
        positions = rlx.arange(length)
        distances = rlx.clip(positions[:, None] - positions[None, :], -self.max_distance, self.max_distance)
        table = relative_position_rows(self.span, self.max_distance, has_buckets=self.has_buckets)
        return nn.embedding(distances + self.max_distance, table)


@frozen(kw_only=True)
class DebertaEncoder:
    """The encoder.

    Attributes:
        vocab_size, embedding_size: The shape of the word embedding.
        max_positions: The number of rows of the table of absolute positions, or `None`: there is no such table.
        type_vocab_size: The number of token types, of which type 0 is added; 0: the model has none.
    """

    vocab_size: int
    embedding_size: int
    max_positions: int | None
    type_vocab_size: int
    num_layers: int
    layer: TransformerLayer
    attention: DisentangledAttention
    relative_positions: RelativePositions
    convolution: ConvolutionLayer | None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        hidden_size, width = self.layer.hidden_size, self.embedding_size
        shapes: dict[str, tuple[int, ...]] = {
            "embeddings.word_embeddings.weight": (self.vocab_size, width),
            **layer_norm_shapes("embeddings.LayerNorm", hidden_size),
            "encoder.rel_embeddings.weight": (2 * self.relative_positions.span, hidden_size),
        }
        if self.max_positions is not None:
            shapes["embeddings.position_embeddings.weight"] = (self.max_positions, width)
        if self.type_vocab_size:
            shapes["embeddings.token_type_embeddings.weight"] = (self.type_vocab_size, width)
        if width != hidden_size:
            shapes["embeddings.embed_proj.weight"] = (hidden_size, width)
        if self.relative_positions.has_norm:
            shapes |= layer_norm_shapes("encoder.LayerNorm", hidden_size)
        if self.convolution is not None:
            shapes |= self.convolution.shapes(hidden_size)
        for n in range(self.num_layers):
            shapes |= self.layer.shapes(f"encoder.layer.{n}")
            shapes |= self.attention.shapes(f"encoder.layer.{n}", hidden_size)
        return shapes

    def __call__(self, parameters: Parameters, input_ids: Any, attention_mask: Any) -> Any:
        """Return hidden states f32[batch, length, hidden_size]."""
        mask = rlx.not_equal(attention_mask, 0)
        token_mask = rlx.astype(mask, rlx.f32)[..., None]
        embeddings = h = self._embed(parameters, input_ids) * token_mask
        table = parameters["encoder.rel_embeddings.weight"]
        if self.relative_positions.has_norm:
            table = layer_norm(parameters, "encoder.LayerNorm", table, self.layer.eps)
        rows = self.relative_positions.rows(input_ids.shape[1])
        for n in range(self.num_layers):
            prefix = f"encoder.layer.{n}"
            attention = partial(self.attention, parameters=parameters, prefix=prefix, table=table, rows=rows, mask=mask)
            h = self.layer(parameters, prefix, h, attention)
            if n == 0 and self.convolution is not None:
                h = self.convolution(parameters, embeddings, h, token_mask)
        return h

    def _embed(self, parameters: Parameters, input_ids: Any) -> Any:
        h = nn.embedding(input_ids, parameters["embeddings.word_embeddings.weight"])
        if self.max_positions is not None:
            h = h + parameters["embeddings.position_embeddings.weight"][: input_ids.shape[1]]
        if self.type_vocab_size:
            h = h + parameters["embeddings.token_type_embeddings.weight"][0]
        if self.embedding_size != self.layer.hidden_size:
            h = linear(parameters, "embeddings.embed_proj", h)
        return layer_norm(parameters, "embeddings.LayerNorm", h, self.layer.eps)


def deberta(config: Config) -> Architecture:
    """Return DeBERTa: input_ids and attention_mask i64[batch, length] -> f32[batch, length, hidden_size]."""
    hidden_size = config.size("hidden_size")
    has_positions, max_positions = config.flag("position_biased_input", True), _max_positions(config)
    eps = config.number("layer_norm_eps", 1e-7)
    layer = TransformerLayer(
        names=DEBERTA_NAMES,
        hidden_size=hidden_size,
        intermediate_size=config.size("intermediate_size"),
        act=ACTIVATIONS[config.choice("hidden_act", *ACTIVATIONS, default="gelu")],
        eps=eps,
        norm="post",
    )
    encoder = DebertaEncoder(
        vocab_size=config.size("vocab_size"),
        embedding_size=config.size("embedding_size", hidden_size),
        max_positions=max_positions if has_positions else None,
        type_vocab_size=config.size("type_vocab_size") if config.values.get("type_vocab_size") else 0,
        num_layers=config.size("num_hidden_layers"),
        layer=layer,
        attention=_attention(config, hidden_size),
        relative_positions=_relative_positions(config),
        convolution=_convolution(config, eps),
    )
    inputs = {"input_ids": token_spec(), "attention_mask": token_spec()}
    unused = (*UNUSED, "lm_predictions.", "mask_predictions.", "embeddings.position_embeddings.")
    return Architecture(encoder.shapes(), "deberta.", unused, inputs, encoder)


def _max_positions(config: Config) -> int:
    return config.size("max_position_embeddings", 512)


def _attention(config: Config, hidden_size: int) -> DisentangledAttention:
    config.choice("relative_attention", True, default=False)
    option = config.values.get("pos_att_type") or []
    terms = tuple(option.split("|") if isinstance(option, str) else option)
    for term in terms:
        Config({"pos_att_type": term}, config.faults).choice("pos_att_type", *POSITION_PROJECTIONS)
    num_heads = config.size("num_attention_heads")
    return DisentangledAttention(
        num_heads=num_heads,
        scale=((1 + len(terms)) * (hidden_size // num_heads)) ** -0.5,
        terms=terms,
        shares_projections=config.flag("share_att_key", False),
    )


def _relative_positions(config: Config) -> RelativePositions:
    max_distance = config.values.get("max_relative_positions", -1)
    if not isinstance(max_distance, int) or max_distance < 1:
        max_distance = _max_positions(config)
    buckets = config.values.get("position_buckets", -1)
    has_buckets = isinstance(buckets, int) and buckets > 0
    span = config.size("position_buckets") if has_buckets else max_distance
    if has_buckets and not 1 < span // 2 < max_distance - 1:
        config.faults.append(Fact("position_buckets", f"{buckets}, and must be 4 to twice {max_distance - 2}"))
        has_buckets, span = False, max_distance
    has_norm = "layer_norm" in str(config.values.get("norm_rel_ebd", "none")).lower()
    return RelativePositions(span=span, max_distance=max_distance, has_buckets=has_buckets, has_norm=has_norm)


def _convolution(config: Config, eps: float) -> ConvolutionLayer | None:
    if not config.values.get("conv_kernel_size"):
        return None
    config.choice("conv_groups", 1, default=1)
    activations = {"tanh": rlx.tanh, **ACTIVATIONS}
    act = activations[config.choice("conv_act", *activations, default="tanh")]
    return ConvolutionLayer(kernel_size=config.size("conv_kernel_size"), act=act, eps=eps)


def relative_position_rows(span: int, max_distance: int, *, has_buckets: bool) -> np.ndarray:
    """Return the row i64[2 · max_distance + 1] of the table for each distance of a query from a key, from -max_distance on.

    With buckets, distances up to half the span have a row each, and larger ones share rows by their logarithm.
    """
    distances = np.arange(-max_distance, max_distance + 1)
    if has_buckets:
        exact = span // 2
        magnitudes = np.maximum(np.abs(distances), exact).astype(np.float32)
        # In f32, as the checkpoints were trained: an ulp decides at the edges of a row.
        growth = np.log(magnitudes / np.float32(exact)) / np.log(np.float32((max_distance - 1) / exact))
        logarithmic = np.ceil(growth * np.float32(exact - 1)) + exact
        distances = np.where(np.abs(distances) <= exact, distances, logarithmic * np.sign(distances)).astype(np.int64)
    return np.clip(distances + span, 0, 2 * span - 1)
