"""Whisper: an encoder that hears and a decoder that writes what was said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_torch.pretrained.caching import Cached
from rlx_torch.pretrained.folder import Config
from rlx_torch.pretrained.parts import (
    ACTIVATIONS,
    Architecture,
    Decoding,
    Parameters,
    layer_shapes,
    linear,
    norm,
    norm_shapes,
)

__all__ = ["whisper"]

EPS = 1e-5

Attend = Callable[[int, Any, Any, Any], Any]


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
            at = f"{stack}.layers.{n}"
            for part in ("self_attn",) if stack == "encoder" else ("self_attn", "encoder_attn"):
                for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    shapes |= layer_shapes(f"{at}.{part}.{name}", d, d, has_bias=name != "k_proj")
                shapes |= norm_shapes(f"{at}.{part}_layer_norm", d)
            shapes |= layer_shapes(f"{at}.fc1", inners[stack], d) | layer_shapes(f"{at}.fc2", d, inners[stack])
            shapes |= norm_shapes(f"{at}.final_layer_norm", d)

    def layers(
        parameters: Parameters, stack: str, h: Any, attend: Attend, cross: Callable[[int, Any], Any] | None = None
    ) -> Any:
        for n in range(counts[stack]):
            at = f"{stack}.layers.{n}"
            given = norm(parameters, f"{at}.self_attn_layer_norm", h, EPS)
            q, k, v = (linear(parameters, f"{at}.self_attn.{name}_proj", given) for name in "qkv")
            h = h + linear(parameters, f"{at}.self_attn.out_proj", attend(n, q, k, v))
            if cross is not None:
                given = norm(parameters, f"{at}.encoder_attn_layer_norm", h, EPS)
                seen = cross(n, linear(parameters, f"{at}.encoder_attn.q_proj", given))
                h = h + linear(parameters, f"{at}.encoder_attn.out_proj", seen)
            given = norm(parameters, f"{at}.final_layer_norm", h, EPS)
            h = h + linear(parameters, f"{at}.fc2", act(linear(parameters, f"{at}.fc1", given)))
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
        names = (f"decoder.layers.{n}.encoder_attn" for n in range(counts["decoder"]))
        return (
            [(linear(parameters, f"{at}.k_proj", heard), linear(parameters, f"{at}.v_proj", heard)) for at in names],
        )

    def decode(parameters: Parameters, ids: Any, positions: Any, attend: Attend, pairs: Any) -> Any:
        h = nn.embedding(ids, parameters["decoder.embed_tokens.weight"])
        h = h + nn.embedding(positions, parameters["decoder.embed_positions.weight"])
        return layers(
            parameters, "decoder", h, attend, lambda n, q: nn.attention(q, *pairs[n], num_heads=heads["decoder"])
        )

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
        Decoding(step, d, counts["decoder"], places["decoder"], read),
        encoder=(encode, features),
    )
