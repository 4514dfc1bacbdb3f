"""Whisper: an encoder that hears and a decoder that writes what was said."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_models.layers.transformer import PLAIN, Attend, Block, Cross
from rlx_models.layers.attention import Cached
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import ACTIVATIONS, Architecture, Decoding, Parameters, norm, norm_shapes

__all__ = ["whisper"]

EPS = 1e-5


def whisper(config: Config) -> Architecture:
    """features f32[batch, mels, frames], ids i64[batch, length] -> logits f32[batch, length, words].

    The features are the logarithms of mel bands, with the number of frames that the model was trained with (3000 for 30 s).
    """
    d, words, mels = config.size("d_model"), config.size("vocab_size"), config.size("num_mel_bins", 80)
    places = {"encoder": config.size("max_source_positions", 1500), "decoder": config.size("max_target_positions", 448)}
    counts, heads, inners = (
        {stack: config.size(f"{stack}_{what}") for stack in places} for what in ("layers", "attention_heads", "ffn_dim")
    )
    act = ACTIVATIONS[config.known("activation_function", *ACTIVATIONS, default="gelu")]
    config.known("scale_embedding", False, default=False)
    blocks = {
        stack: Block(names=PLAIN, d=d, inner=inner, act=act, eps=EPS, unbiased=frozenset(("k", "cross_k")))
        for stack, inner in inners.items()
    }

    shapes: dict[str, tuple[int, ...]] = {
        "encoder.conv1.weight": (d, mels, 3),
        "encoder.conv1.bias": (d,),
        "encoder.conv2.weight": (d, d, 3),
        "encoder.conv2.bias": (d,),
        "decoder.embed_tokens.weight": (words, d),
    }
    for stack, count in counts.items():
        shapes |= {f"{stack}.embed_positions.weight": (places[stack], d)} | norm_shapes(f"{stack}.layer_norm", d)
        for n in range(count):
            shapes |= blocks[stack].shapes(f"{stack}.layers.{n}", has_cross=stack == "decoder")

    def layers(
        parameters: Parameters, stack: str, h: Any, attend: Attend, cross: Callable[[int], Cross] | None = None
    ) -> Any:
        for n in range(counts[stack]):
            seen = None if cross is None else cross(n)
            h = blocks[stack](parameters, f"{stack}.layers.{n}", h, partial(attend, n), seen)
        return norm(parameters, f"{stack}.layer_norm", h, EPS)

    def conv(parameters: Parameters, name: str, x: Any, stride: int) -> Any:
        return nn.conv(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"], stride=stride, padding=1)

    def encode(parameters: Parameters, features: Any) -> Any:
        h = nn.gelu(conv(parameters, "encoder.conv1", features, stride=1))
        h = nn.gelu(conv(parameters, "encoder.conv2", h, stride=2))
        h = rlx.matrix_transpose(h) + parameters["encoder.embed_positions.weight"]
        return layers(parameters, "encoder", h, lambda n, q, k, v: nn.attention(q, k, v, num_heads=heads["encoder"]))

    def read(parameters: Parameters, features: Any) -> tuple[list[tuple[Any, Any]]]:
        """The keys and values of what was heard for each layer of the decoder."""
        heard = encode(parameters, features)
        places = (f"decoder.layers.{n}" for n in range(counts["decoder"]))
        return ([blocks["decoder"].pair(parameters, at, heard) for at in places],)

    def decode(parameters: Parameters, ids: Any, positions: Any, attend: Attend, pairs: Any) -> Any:
        h = nn.embedding(ids, parameters["decoder.embed_tokens.weight"])
        h = h + nn.embedding(positions, parameters["decoder.embed_positions.weight"])

        def cross(number: int) -> Cross:
            return lambda q: nn.attention(q, *pairs[number], num_heads=heads["decoder"])

        return layers(parameters, "decoder", h, attend, cross)

    def logits(parameters: Parameters, h: Any) -> Any:
        return h @ rlx.matrix_transpose(parameters["decoder.embed_tokens.weight"])

    def function(parameters: Parameters, features: Any, ids: Any) -> Any:
        def attend(number: int, q: Any, k: Any, v: Any) -> Any:
            return nn.attention(q, k, v, num_heads=heads["decoder"], causal=True)

        (pairs,) = read(parameters, features)
        return logits(parameters, decode(parameters, ids, rlx.arange(ids.shape[1]), attend, pairs))

    def step(
        parameters: Parameters, ids: Any, padding: Any, cache: Any, at: Any, pairs: Any
    ) -> tuple[Any, list[tuple[Any, Any]]]:
        cached = Cached(cache, at, padding, ids.shape[1], heads["decoder"], heads["decoder"])
        h = decode(parameters, ids, cached.positions, cached, pairs)
        return logits(parameters, h[:, -1]), cached.kept

    features = {"features": rlx.spec(f"f32[batch, {mels}, {2 * places['encoder']}]")}
    return Architecture(
        shapes,
        "model.",
        ("proj_out.",),
        {**features, "ids": rlx.spec("i64[batch, length]")},
        function,
        Decoding(step, (((None, d), (None, d)),) * counts["decoder"], places["decoder"], read),
        parts={"encoder": (encode, features)},
    )
