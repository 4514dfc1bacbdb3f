"""T5 and mT5: an encoder that reads a text and a decoder that writes another, with biases for distances in place of positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_models.layers.attention import Cached
from rlx_models.layers.relative_position import bias
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import ACTIVATIONS, Architecture, Decoding, Parameters, linear

__all__ = ["t5"]

UNUSED = ("encoder.embed_tokens.", "decoder.embed_tokens.", "EncDecAttention.relative_attention_bias.weight")

IDS = rlx.spec("i64[batch, length]")

PROJECTIONS = {"relu": "relu", "gated-gelu": "gelu_new", "gated-relu": "relu", "gated-silu": "silu"}
"""Kinds of feed-forward layers and their activations."""


def t5(config: Config) -> Architecture:
    """ids and mask i64[batch, length], decoder_ids i64[batch, steps] -> logits f32[batch, steps, words].

    A checkpoint of the encoder alone (`T5EncoderModel`) takes ids and mask and gives f32[batch, length, d_model].
    """
    d, inner, heads, head = (config.size(name) for name in ("d_model", "d_ff", "num_heads", "d_kv"))
    counts = {"encoder": config.size("num_layers")}
    if config.rows.get("architectures") not in (["T5EncoderModel"], ["MT5EncoderModel"]):
        counts["decoder"] = config.size("num_decoder_layers", counts["encoder"])
    eps, words = config.number("layer_norm_epsilon", 1e-6), config.size("vocab_size")
    kinds, reach = (
        config.size("relative_attention_num_buckets", 32),
        config.size("relative_attention_max_distance", 128),
    )
    is_mt5 = config.rows.get("model_type") == "mt5"
    kind = config.known("feed_forward_proj", *PROJECTIONS, default="gated-gelu" if is_mt5 else "relu")
    act, ups = ACTIVATIONS[PROJECTIONS[kind]], ("wi_0", "wi_1") if kind.startswith("gated") else ("wi",)
    # What was trained with a head of its own is not scaled; newer files say so by itself.
    is_scaled = not is_mt5 and config.flag("scale_decoder_outputs", config.flag("tie_word_embeddings", True))

    shapes: dict[str, tuple[int, ...]] = {"shared.weight": (words, d)}
    if "decoder" in counts:
        shapes["lm_head.weight"] = (words, d)
    for stack, count in counts.items():
        shapes[f"{stack}.final_layer_norm.weight"] = (d,)
        shapes[bias_name(stack)] = (kinds, heads)
        for n in range(count):
            parts = ("SelfAttention",) if stack == "encoder" else ("SelfAttention", "EncDecAttention")
            at = f"{stack}.block.{n}.layer"
            for number, part in enumerate(parts):
                shapes |= {f"{at}.{number}.{part}.{name}.weight": (heads * head, d) for name in "qkv"}
                shapes[f"{at}.{number}.{part}.o.weight"] = (d, heads * head)
            last = f"{at}.{len(parts)}.DenseReluDense"
            shapes |= {f"{last}.{name}.weight": (inner, d) for name in ups} | {f"{last}.wo.weight": (d, inner)}
            shapes |= {f"{at}.{number}.layer_norm.weight": (d,) for number in range(len(parts) + 1)}

    def normed(parameters: Parameters, name: str, x: Any) -> Any:
        return nn.rms_norm(x, parameters[f"{name}.weight"], eps=eps)

    def near(parameters: Parameters, stack: str, queries: Any, keys: Any) -> Any:
        return bias(parameters[bias_name(stack)], reach, queries, keys, is_causal=stack == "decoder")

    def layers(
        parameters: Parameters,
        stack: str,
        ids: Any,
        attend: Callable[[int, Any, Any, Any], Any],
        cross: Callable[[int, Any], Any] | None = None,
    ) -> Any:
        h = nn.embedding(ids, parameters["shared.weight"])
        for n in range(counts[stack]):
            at = f"{stack}.block.{n}.layer"
            given = normed(parameters, f"{at}.0.layer_norm", h)
            q, k, v = (linear(parameters, f"{at}.0.SelfAttention.{name}", given) for name in "qkv")
            h = h + linear(parameters, f"{at}.0.SelfAttention.o", attend(n, q, k, v))
            if cross is not None:
                q = linear(parameters, f"{at}.1.EncDecAttention.q", normed(parameters, f"{at}.1.layer_norm", h))
                h = h + linear(parameters, f"{at}.1.EncDecAttention.o", cross(n, q))
            last = f"{at}.{1 if cross is None else 2}"
            first, *gate = (
                linear(parameters, f"{last}.DenseReluDense.{name}", normed(parameters, f"{last}.layer_norm", h))
                for name in ups
            )
            up = act(first) * gate[0] if gate else act(first)
            h = h + linear(parameters, f"{last}.DenseReluDense.wo", up)
        return normed(parameters, f"{stack}.final_layer_norm", h)

    def encode(parameters: Parameters, ids: Any, mask: Any) -> Any:
        places, real = rlx.arange(ids.shape[1]), rlx.not_equal(mask, 0)
        biases = near(parameters, "encoder", places, places)

        def attend(number: int, q: Any, k: Any, v: Any) -> Any:
            return nn.attention(q, k, v, num_heads=heads, mask=real, bias=biases, scale=1.0)

        return layers(parameters, "encoder", ids, attend)

    def read(parameters: Parameters, ids: Any, mask: Any) -> tuple[list[tuple[Any, Any]], Any]:
        """The keys and values of the text for each layer of the decoder, and which of them are no padding."""
        seen = encode(parameters, ids, mask)
        names = (f"decoder.block.{n}.layer.1.EncDecAttention" for n in range(counts["decoder"]))
        pairs = [(linear(parameters, f"{at}.k", seen), linear(parameters, f"{at}.v", seen)) for at in names]
        return pairs, rlx.not_equal(mask, 0)

    def crossing(pairs: Any, real: Any) -> Callable[[int, Any], Any]:
        return lambda number, q: nn.attention(q, *pairs[number], num_heads=heads, mask=real, scale=1.0)

    def logits(parameters: Parameters, h: Any) -> Any:
        head_name = "lm_head.weight" if "lm_head.weight" in parameters else "shared.weight"
        return (h * d**-0.5 if is_scaled else h) @ rlx.matrix_transpose(parameters[head_name])

    def function(parameters: Parameters, ids: Any, mask: Any, decoder_ids: Any) -> Any:
        places = rlx.arange(decoder_ids.shape[1])
        biases = near(parameters, "decoder", places, places)

        def attend(number: int, q: Any, k: Any, v: Any) -> Any:
            return nn.attention(q, k, v, num_heads=heads, causal=True, bias=biases, scale=1.0)

        cross = crossing(*read(parameters, ids, mask))
        return logits(parameters, layers(parameters, "decoder", decoder_ids, attend, cross))

    def step(
        parameters: Parameters, ids: Any, padding: Any, cache: Any, at: Any, pairs: Any, real: Any
    ) -> tuple[Any, list[tuple[Any, Any]]]:
        cached = Cached(cache, at, padding, ids.shape[1], heads, heads)
        biases = near(parameters, "decoder", cached.places, cached.room)

        def attend(number: int, q: Any, k: Any, v: Any) -> Any:
            return cached(number, q, k, v, bias=biases, scale=1.0)

        h = layers(parameters, "decoder", ids, attend, crossing(pairs, real))
        return logits(parameters, h[:, -1]), cached.kept

    inputs = {"ids": IDS, "mask": IDS}
    if "decoder" not in counts:
        return Architecture(shapes, "", UNUSED, inputs, encode)
    start = int(config.number("decoder_start_token_id", config.number("pad_token_id", 0)))
    return Architecture(
        shapes,
        "",
        UNUSED,
        {**inputs, "decoder_ids": rlx.spec("i64[batch, steps]")},
        function,
        Decoding(step, (((None, heads * head),) * 2,) * counts["decoder"], None, read, start),
        optional=("lm_head.weight",),
        parts={"encoder": (encode, inputs)},
    )


def bias_name(stack: str) -> str:
    """The table of biases by kind of distance, which the first layer has for all."""
    return f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
