"""Decoders: what continues a text. Their layers are one function, whether all of a text is given or its next token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_torch.pretrained.folder import Config, Shapes
from rlx_torch.pretrained.parts import ACTIVATIONS, Architecture, Decoding, Parameters, linear, norm, tables_of_rope

__all__ = ["gpt2", "llama"]

UNUSED = ("attn.bias", "attn.masked_bias", "rotary_emb.inv_freq", "score.weight")

IDS = rlx.spec("i64[batch, length]")

Attend = Callable[[int, Any, Any, Any], Any]
"""What a layer, by its number, sees: of queries, keys and values `[batch, steps, heads · head]`."""

Layers = Callable[[Parameters, Any, Any, Attend], Any]
"""From parameters, ids, their positions and what attends to the features behind the last norm."""


def decoder(
    shapes: Shapes,
    prefix: str,
    layers: Layers,
    head_name: str,
    *,
    heads: int,
    kv_heads: int,
    head: int,
    count: int,
    positions: int,
) -> Architecture:
    """A decoder of its layers.

    Args:
        head_name: The tensor whose rows are multiplied with the features to give logits.
        heads, kv_heads, head: Heads of queries, of keys and values, and the features of one.
        count: Layers.
        positions: The most tokens of a text.
    """

    def logits(parameters: Parameters, h: Any) -> Any:
        return h @ rlx.matrix_transpose(parameters[head_name])

    def function(parameters: Parameters, ids: Any) -> Any:
        def attend(number: int, q: Any, k: Any, v: Any) -> Any:
            return nn.attention(q, k, v, num_heads=heads, num_kv_heads=kv_heads, causal=True)

        return logits(parameters, layers(parameters, ids, rlx.arange(ids.shape[1]), attend))

    def step(
        parameters: Parameters, ids: Any, padding: Any, cache: Sequence[tuple[Any, Any]], at: Any
    ) -> tuple[Any, list[tuple[Any, Any]]]:
        """ids i64[batch, steps] at places `at` and on of a room whose first `padding` i64[batch] places nobody sees."""
        kept: list[tuple[Any, Any]] = []
        room = rlx.arange(cache[0][0].shape[1])
        places = at + rlx.arange(ids.shape[1])
        reached = room[None, :] <= places[:, None]
        mask = rlx.logical_and(room[None, None, None, :] >= padding[:, None, None, None], reached[None, None])

        def attend(number: int, q: Any, k: Any, v: Any) -> Any:
            keys, values = (nn.update_cache(old, new, at) for old, new in zip(cache[number], (k, v), strict=True))
            kept.append((keys, values))
            return nn.attention(q, keys, values, num_heads=heads, num_kv_heads=kv_heads, mask=mask)

        h = layers(parameters, ids, rlx.maximum(places[None, :] - padding[:, None], 0), attend)
        return logits(parameters, h[:, -1]), kept

    decoding = Decoding(step, kv_heads * head, count, positions)
    return Architecture(shapes, prefix, UNUSED, {"ids": IDS}, function, decoding)


def gpt2(config: Config) -> Architecture:
    """GPT-2: ids i64[batch, length] -> logits f32[batch, length, words]. Its products have weights `[inputs, outputs]`."""
    d, heads, count = config.size("n_embd"), config.size("n_head"), config.size("n_layer")
    inner, room = config.size("n_inner", 4 * d), config.size("n_positions")
    act = ACTIVATIONS[config.known("activation_function", *ACTIVATIONS, default="gelu_new")]
    eps = config.number("layer_norm_epsilon", 1e-5)
    config.known("scale_attn_weights", True, default=True)
    config.known("scale_attn_by_inverse_layer_idx", False, default=False)
    shapes: dict[str, tuple[int, ...]] = {
        "wte.weight": (config.size("vocab_size"), d),
        "wpe.weight": (room, d),
        "ln_f.weight": (d,),
        "ln_f.bias": (d,),
    }
    for n in range(count):
        for name, (inputs, outputs) in {
            "attn.c_attn": (d, 3 * d), "attn.c_proj": (d, d), "mlp.c_fc": (d, inner), "mlp.c_proj": (inner, d),
        }.items():  # fmt: skip
            shapes |= {f"h.{n}.{name}.weight": (inputs, outputs), f"h.{n}.{name}.bias": (outputs,)}
        shapes |= {f"h.{n}.{name}.{part}": (d,) for name in ("ln_1", "ln_2") for part in ("weight", "bias")}

    def layers(parameters: Parameters, ids: Any, positions: Any, attend: Attend) -> Any:
        h = nn.embedding(ids, parameters["wte.weight"]) + nn.embedding(positions, parameters["wpe.weight"])
        for n in range(count):
            given = norm(parameters, f"h.{n}.ln_1", h, eps)
            q, k, v = rlx.split(linear(parameters, f"h.{n}.attn.c_attn", given, is_turned=True), 3, axis=-1)
            h = h + linear(parameters, f"h.{n}.attn.c_proj", attend(n, q, k, v), is_turned=True)
            up = act(linear(parameters, f"h.{n}.mlp.c_fc", norm(parameters, f"h.{n}.ln_2", h, eps), is_turned=True))
            h = h + linear(parameters, f"h.{n}.mlp.c_proj", up, is_turned=True)
        return norm(parameters, "ln_f", h, eps)

    return decoder(
        shapes, "transformer.", layers, "wte.weight",
        heads=heads, kv_heads=heads, head=d // heads, count=count, positions=room,
    )  # fmt: skip


def llama(config: Config) -> Architecture:
    """Llama, Mistral, Qwen2 and Qwen3: ids i64[batch, length] -> logits f32[batch, length, words]."""
    kind = config.rows.get("model_type")
    d, inner, count = config.size("hidden_size"), config.size("intermediate_size"), config.size("num_hidden_layers")
    heads = config.size("num_attention_heads")
    kv_heads, head = config.size("num_key_value_heads", heads), config.size("head_dim", max(1, d // heads))
    eps, words = config.number("rms_norm_eps", 1e-6), config.size("vocab_size")
    act = ACTIVATIONS[config.known("hidden_act", *ACTIVATIONS, default="silu")]
    room = config.size("max_position_embeddings", 2048)
    cos, sin = tables_of_rope(config, head, room)
    config.known("use_sliding_window", False, None, default=False)
    if kind == "mistral":
        config.known("sliding_window", None)
    has_bias = kind == "qwen2" or config.flag("attention_bias", False)
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (words, d), "norm.weight": (d,)}
    is_tied = config.flag("tie_word_embeddings", False)
    if not is_tied:
        shapes["lm_head.weight"] = (words, d)
    for n in range(count):
        at = f"layers.{n}"
        for name, size in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            shapes[f"{at}.self_attn.{name}_proj.weight"] = (size * head, d)
            if has_bias:
                shapes[f"{at}.self_attn.{name}_proj.bias"] = (size * head,)
            if kind == "qwen3" and name != "v":
                shapes[f"{at}.self_attn.{name}_norm.weight"] = (head,)
        shapes[f"{at}.self_attn.o_proj.weight"] = (d, heads * head)
        if has_bias and kind != "qwen2":
            shapes[f"{at}.self_attn.o_proj.bias"] = (d,)
        shapes |= {f"{at}.mlp.{name}_proj.weight": (inner, d) for name in ("gate", "up")}
        shapes[f"{at}.mlp.down_proj.weight"] = (d, inner)
        shapes |= {f"{at}.{name}_layernorm.weight": (d,) for name in ("input", "post_attention")}
    config.known("mlp_bias", False, default=False)

    def turned(x: Any, positions: Any, gain: Any) -> Any:
        if gain is not None:  # each head is normed by itself
            x = rlx.reshape(nn.rms_norm(rlx.reshape(x, (*x.shape[:-1], -1, head)), gain, eps=eps), x.shape)
        rank = len(positions.shape)
        return nn.rope(x, cos, sin, positions if rank == 2 else None, head_dim=head)

    def layers(parameters: Parameters, ids: Any, positions: Any, attend: Attend) -> Any:
        h = nn.embedding(ids, parameters["embed_tokens.weight"])
        for n in range(count):
            at = f"layers.{n}"
            given = nn.rms_norm(h, parameters[f"{at}.input_layernorm.weight"], eps=eps)
            q, k, v = (linear(parameters, f"{at}.self_attn.{name}_proj", given) for name in "qkv")
            gains = (parameters.get(f"{at}.self_attn.{name}_norm.weight") for name in "qk")
            q, k = (turned(x, positions, gain) for x, gain in zip((q, k), gains, strict=True))
            h = h + linear(parameters, f"{at}.self_attn.o_proj", attend(n, q, k, v))
            given = nn.rms_norm(h, parameters[f"{at}.post_attention_layernorm.weight"], eps=eps)
            gate = act(linear(parameters, f"{at}.mlp.gate_proj", given))
            h = h + linear(parameters, f"{at}.mlp.down_proj", gate * linear(parameters, f"{at}.mlp.up_proj", given))
        return nn.rms_norm(h, parameters["norm.weight"], eps=eps)

    name = "embed_tokens.weight" if is_tied else "lm_head.weight"
    return decoder(
        shapes, "model.", layers, name,
        heads=heads, kv_heads=kv_heads, head=head, count=count, positions=room,
    )  # fmt: skip
