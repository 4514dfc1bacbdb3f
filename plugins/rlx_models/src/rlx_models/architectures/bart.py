"""BART and Marian: an encoder and a decoder with norms of the residual sums.

Source:
    Lewis et al. 2019, "BART: Denoising Sequence-to-Sequence Pre-training", arXiv:1910.13461; Junczys-Dowmunt et al. 2018,
    "Marian: Fast Neural Machine Translation in C++", arXiv:1804.00344.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import numpy as np
from attrs import frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_models.architectures.architecture import Architecture, token_spec
from rlx_models.architectures.encoder_decoder import DecoderSize, Encoded, cross_attention, encoder_decoder
from rlx_models.checkpoints import Config
from rlx_models.layers.attention import CausalSelfAttention
from rlx_models.layers.linear import ACTIVATIONS, Parameters, layer_norm, layer_norm_shapes
from rlx_models.layers.transformer import BART_NAMES, TransformerLayer

EPS: Final = 1e-5
POSITION_OFFSET: Final = 2
"""The row of the position table for the first token."""

UNUSED: Final = ("encoder.embed_tokens.", "decoder.embed_tokens.", "lm_head.", "classification_head.", "qa_outputs.")


@frozen(kw_only=True)
class Bart:
    """The stacks of BART and Marian.

    Attributes:
        vocab_size, d_model: The shape of the embedding.
        max_positions: The maximum number of tokens.
        num_layers, num_heads, layers: Of `encoder` and `decoder`.
        embed_scale: The multiplier of embeddings.
        has_position_table: Whether positions have a table in the checkpoint and embeddings have norms; sinusoids otherwise.
    """

    vocab_size: int
    d_model: int
    max_positions: int
    num_layers: Mapping[str, int]
    num_heads: Mapping[str, int]
    layers: Mapping[str, TransformerLayer]
    embed_scale: float
    has_position_table: bool

    @property
    def decoder_size(self) -> DecoderSize:
        return DecoderSize(self.num_layers["decoder"], self.num_heads["decoder"], self.d_model)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        d, words = self.d_model, self.vocab_size
        shapes: dict[str, tuple[int, ...]] = {"shared.weight": (words, d), "final_logits_bias": (1, words)}
        for stack, count in self.num_layers.items():
            if self.has_position_table:
                shapes[f"{stack}.embed_positions.weight"] = (self.max_positions + POSITION_OFFSET, d)
                shapes |= layer_norm_shapes(f"{stack}.layernorm_embedding", d)
            for n in range(count):
                shapes |= self.layers[stack].shapes(f"{stack}.layers.{n}", has_cross_attention=stack == "decoder")
        return shapes

    def encode(self, parameters: Parameters, input_ids: Any, attention_mask: Any) -> Any:
        h = self._embed(parameters, "encoder", input_ids, rlx.arange(input_ids.shape[1]))
        mask = rlx.not_equal(attention_mask, 0)
        attention = partial(nn.attention, num_heads=self.num_heads["encoder"], mask=mask)
        for n in range(self.num_layers["encoder"]):
            h = self.layers["encoder"](parameters, f"encoder.layers.{n}", h, attention)
        return h

    def encode_for_decoder(self, parameters: Parameters, input_ids: Any, attention_mask: Any) -> Encoded:
        h, layer = self.encode(parameters, input_ids, attention_mask), self.layers["decoder"]
        prefixes = (f"decoder.layers.{n}" for n in range(self.num_layers["decoder"]))
        pairs = [layer.cross_keys_values(parameters, prefix, h) for prefix in prefixes]
        return pairs, rlx.not_equal(attention_mask, 0)

    def decode(self, parameters: Parameters, input_ids: Any, attention: CausalSelfAttention, encoded: Encoded) -> Any:
        h = self._embed(parameters, "decoder", input_ids, attention.positions)
        for n in range(self.num_layers["decoder"]):
            cross = cross_attention(encoded, n, num_heads=self.num_heads["decoder"])
            h = self.layers["decoder"](parameters, f"decoder.layers.{n}", h, partial(attention, n), cross)
        return h

    def logits(self, parameters: Parameters, h: Any) -> Any:
        logits = h @ rlx.matrix_transpose(parameters["shared.weight"])
        return logits + parameters["final_logits_bias"][0] if "final_logits_bias" in parameters else logits

    def _embed(self, parameters: Parameters, stack: str, input_ids: Any, positions: Any) -> Any:
        h = nn.embedding(input_ids, parameters["shared.weight"]) * self.embed_scale
        if not self.has_position_table:
            return h + nn.embedding(positions, sinusoids(self.max_positions, self.d_model))
        h = h + nn.embedding(positions + POSITION_OFFSET, parameters[f"{stack}.embed_positions.weight"])
        return layer_norm(parameters, f"{stack}.layernorm_embedding", h, EPS)


def sinusoids(max_positions: int, d: int) -> np.ndarray:
    """Return f32[max_positions, d]: sines of each position at d / 2 frequencies, then the cosines.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, section 3.5, with sines and cosines in two halves.
    """
    count = (d + 1) // 2
    angles = np.arange(max_positions)[:, None] * 10000.0 ** (-2 * np.arange(count) / d)
    return np.concatenate([np.sin(angles), np.cos(angles[:, : d - count])], axis=1).astype(np.float32)


def bart(config: Config) -> Architecture:
    """Return BART: input_ids and attention_mask i64[batch, length], decoder_input_ids i64[batch, steps] -> logits
    f32[batch, steps, vocab_size].
    """
    return _architecture(config, has_position_table=True)


def marian(config: Config) -> Architecture:
    """Return Marian (OPUS-MT): BART without norms of embeddings, and with sinusoids for positions."""
    config.choice("share_encoder_decoder_embeddings", True, default=True)
    config.choice("decoder_vocab_size", None, config.values.get("vocab_size"))
    return _architecture(config, has_position_table=False)


def _architecture(config: Config, *, has_position_table: bool) -> Architecture:
    d_model = config.size("d_model")
    act = ACTIVATIONS[config.choice("activation_function", *ACTIVATIONS, default="gelu")]
    config.choice("tie_word_embeddings", True, default=True)
    stacks = ("encoder", "decoder")
    layers = {
        stack: TransformerLayer(
            names=BART_NAMES,
            hidden_size=d_model,
            intermediate_size=config.size(f"{stack}_ffn_dim"),
            act=act,
            eps=EPS,
            norm="post",
        )
        for stack in stacks
    }
    model = Bart(
        vocab_size=config.size("vocab_size"),
        d_model=d_model,
        max_positions=config.size("max_position_embeddings", 1024),
        num_layers={stack: config.size(f"{stack}_layers") for stack in stacks},
        num_heads={stack: config.size(f"{stack}_attention_heads") for stack in stacks},
        layers=layers,
        embed_scale=math.sqrt(d_model) if config.flag("scale_embedding", False) else 1.0,
        has_position_table=has_position_table,
    )
    return encoder_decoder(
        model,
        "model.",
        UNUSED if has_position_table else (*UNUSED, "embed_positions.weight"),
        {"input_ids": token_spec(), "attention_mask": token_spec()},
        {"decoder_input_ids": token_spec(length="steps")},
        max_positions=model.max_positions,
        start_token_id=int(config.number("decoder_start_token_id", config.number("eos_token_id", 2))),
        optional=("final_logits_bias",),
    )
