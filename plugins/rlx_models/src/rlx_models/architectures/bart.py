"""BART and Marian: an encoder that reads a text and a decoder that writes another, their norms behind their parts."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn
from rlx_models.layers.transformer import PLAIN, Attend, Block
from rlx_models.layers.attention import Cached
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import ACTIVATIONS, Architecture, Decoding, Parameters, norm, norm_shapes

__all__ = ["bart", "marian"]

EPS = 1e-5
FIRST = 2
"""The row of the tables of positions that is for the first token."""

UNUSED = ("encoder.embed_tokens.", "decoder.embed_tokens.", "lm_head.", "classification_head.", "qa_outputs.")

IDS = rlx.spec("i64[batch, length]")


def bart(config: Config) -> Architecture:
    """ids and mask i64[batch, length], decoder_ids i64[batch, steps] -> logits f32[batch, steps, words]."""
    return reader_and_writer(config, has_table=True)


def marian(config: Config) -> Architecture:
    """Marian (OPUS-MT): BART without norms of embeddings, and with sinusoids for positions."""
    config.known("share_encoder_decoder_embeddings", True, default=True)
    config.known("decoder_vocab_size", None, config.rows.get("vocab_size"))
    return reader_and_writer(config, has_table=False)


def sinusoids(room: int, d: int) -> np.ndarray:
    """Return f32[room, d]: sines of each position at d / 2 frequencies, then the cosines.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, section 3.5, with sines and cosines apart.
    """
    count = (d + 1) // 2
    angles = np.arange(room)[:, None] * 10000.0 ** (-2 * np.arange(count) / d)
    return np.concatenate([np.sin(angles), np.cos(angles[:, : d - count])], axis=1).astype(np.float32)


def reader_and_writer(config: Config, *, has_table: bool) -> Architecture:
    """Return an encoder with a decoder.

    Args:
        has_table: Whether positions have a table in the checkpoint and embeddings are normed; sinusoids otherwise.
    """
    d, words, room = config.size("d_model"), config.size("vocab_size"), config.size("max_position_embeddings", 1024)
    act = ACTIVATIONS[config.known("activation_function", *ACTIVATIONS, default="gelu")]
    config.known("tie_word_embeddings", True, default=True)
    factor = math.sqrt(d) if config.flag("scale_embedding", False) else 1.0
    counts, heads = (
        {stack: config.size(f"{stack}_{what}") for stack in ("encoder", "decoder")}
        for what in ("layers", "attention_heads")
    )
    blocks = {
        stack: Block(names=PLAIN, d=d, inner=config.size(f"{stack}_ffn_dim"), act=act, eps=EPS, norms="behind")
        for stack in counts
    }
    shapes: dict[str, tuple[int, ...]] = {"shared.weight": (words, d), "final_logits_bias": (1, words)}
    for stack, count in counts.items():
        if has_table:
            shapes[f"{stack}.embed_positions.weight"] = (room + FIRST, d)
            shapes |= norm_shapes(f"{stack}.layernorm_embedding", d)
        for n in range(count):
            shapes |= blocks[stack].shapes(f"{stack}.layers.{n}", has_cross=stack == "decoder")

    waves = sinusoids(room, d)

    def embedded(parameters: Parameters, stack: str, ids: Any, positions: Any) -> Any:
        h = nn.embedding(ids, parameters["shared.weight"]) * factor
        if not has_table:
            return h + nn.embedding(positions, waves)
        h = h + nn.embedding(positions + FIRST, parameters[f"{stack}.embed_positions.weight"])
        return norm(parameters, f"{stack}.layernorm_embedding", h, EPS)

    def encode(parameters: Parameters, ids: Any, mask: Any) -> Any:
        h, real = embedded(parameters, "encoder", ids, rlx.arange(ids.shape[1])), rlx.not_equal(mask, 0)
        for n in range(counts["encoder"]):
            attend = partial(nn.attention, num_heads=heads["encoder"], mask=real)
            h = blocks["encoder"](parameters, f"encoder.layers.{n}", h, attend)
        return h

    def read(parameters: Parameters, ids: Any, mask: Any) -> tuple[list[tuple[Any, Any]], Any]:
        """The keys and values of the text for each layer of the decoder, and which of them are no padding."""
        seen = encode(parameters, ids, mask)
        places = (f"decoder.layers.{n}" for n in range(counts["decoder"]))
        return [blocks["decoder"].pair(parameters, at, seen) for at in places], rlx.not_equal(mask, 0)

    def decode(parameters: Parameters, ids: Any, positions: Any, attend: Attend, pairs: Any, real: Any) -> Any:
        h = embedded(parameters, "decoder", ids, positions)
        for n, (k, v) in enumerate(pairs):
            cross = partial(nn.attention, k=k, v=v, num_heads=heads["decoder"], mask=real)
            h = blocks["decoder"](parameters, f"decoder.layers.{n}", h, partial(attend, n), cross)
        return h

    def logits(parameters: Parameters, h: Any) -> Any:
        found = h @ rlx.matrix_transpose(parameters["shared.weight"])
        return found + parameters["final_logits_bias"][0] if "final_logits_bias" in parameters else found

    def function(parameters: Parameters, ids: Any, mask: Any, decoder_ids: Any) -> Any:
        def attend(number: int, q: Any, k: Any, v: Any) -> Any:
            return nn.attention(q, k, v, num_heads=heads["decoder"], causal=True)

        places = rlx.arange(decoder_ids.shape[1])
        return logits(parameters, decode(parameters, decoder_ids, places, attend, *read(parameters, ids, mask)))

    def step(
        parameters: Parameters, ids: Any, padding: Any, cache: Any, at: Any, pairs: Any, real: Any
    ) -> tuple[Any, list[tuple[Any, Any]]]:
        cached = Cached(cache, at, padding, ids.shape[1], heads["decoder"], heads["decoder"])
        h = decode(parameters, ids, cached.positions, cached, pairs, real)
        return logits(parameters, h[:, -1]), cached.kept

    start = int(config.number("decoder_start_token_id", config.number("eos_token_id", 2)))
    return Architecture(
        shapes,
        "model.",
        UNUSED if has_table else (*UNUSED, "embed_positions.weight"),
        {"ids": IDS, "mask": IDS, "decoder_ids": rlx.spec("i64[batch, steps]")},
        function,
        Decoding(step, (((None, d), (None, d)),) * counts["decoder"], room, read, start),
        optional=("final_logits_bias",),
        parts={"encoder": (encode, {"ids": IDS, "mask": IDS})},
    )
