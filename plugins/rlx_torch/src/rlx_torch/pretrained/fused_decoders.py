"""GPT-NeoX, Phi, Falcon and BLOOM: decoders with fused projections, or with attention and the net beside each other."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn
from rlx_torch.pretrained.blocks import Block
from rlx_torch.pretrained.decoders import ORDINARY, Attend, Sight, decoder
from rlx_torch.pretrained.folder import Config
from rlx_torch.pretrained.parts import ACTIVATIONS, Architecture, Parameters, norm, norm_shapes, turning

__all__ = ["bloom", "falcon", "gpt_neox", "phi"]

GPT_NEOX = {
    "qkv": "attention.query_key_value",
    "out": "attention.dense",
    "up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
    "norm_a": "input_layernorm",
    "norm_b": "post_attention_layernorm",
}
BLOOM = {**GPT_NEOX, "qkv": "self_attention.query_key_value", "out": "self_attention.dense"}
PHI = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "out": "self_attn.dense",
    "up": "mlp.fc1",
    "down": "mlp.fc2",
    "norm_a": "input_layernorm",
    "norm_b": "input_layernorm",
}
"""What the parts of a layer are called."""


def gpt_neox(config: Config) -> Architecture:
    """GPT-NeoX and Pythia: ids i64[batch, length] -> logits f32[batch, length, words]."""
    d, heads = config.size("hidden_size"), config.size("num_attention_heads")
    bias = frozenset[str]() if config.flag("attention_bias", True) else frozenset(("qkv", "out"))
    block = Block(
        names=GPT_NEOX,
        d=d,
        inner=config.size("intermediate_size"),
        act=ACTIVATIONS[config.known("hidden_act", *ACTIVATIONS, default="gelu")],
        eps=config.number("layer_norm_eps", 1e-5),
        norms="beside" if config.flag("use_parallel_residual", True) else "before",
        unbiased=bias,
        split=lambda x: by_head(x, heads),
    )
    older = {
        "rope_theta": config.number("rotary_emb_base", 10000.0),
        "partial_rotary_factor": config.number("rotary_pct", 0.25),
    }
    head_name = "embed_in.weight" if config.flag("tie_word_embeddings", False) else "embed_out.weight"
    return stacked(
        Config({**older, **config.rows}, config.faults), block, "gpt_neox.", "layers",
        {"embed": "embed_in", "last": "final_layer_norm", "head": head_name}, heads=heads, is_turning=True,
    )  # fmt: skip


def phi(config: Config) -> Architecture:
    """Phi 1, 1.5 and 2: ids i64[batch, length] -> logits f32[batch, length, words]."""
    d, heads = config.size("hidden_size"), config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", heads)
    config.known("qk_layernorm", False, default=False)
    config.known("tie_word_embeddings", False, default=False)
    block = Block(
        names=PHI,
        d=d,
        inner=config.size("intermediate_size"),
        keys=kv_heads * (d // heads),
        act=ACTIVATIONS[config.known("hidden_act", *ACTIVATIONS, default="gelu_new")],
        eps=config.number("layer_norm_eps", 1e-5),
        norms="beside",
    )
    return stacked(
        Config({"partial_rotary_factor": 0.5, **config.rows}, config.faults), block, "model.", "layers",
        {"embed": "embed_tokens", "last": "final_layernorm", "head": "lm_head.weight", "bias": "lm_head.bias"},
        heads=heads, kv_heads=kv_heads, is_turning=True,
    )  # fmt: skip


def falcon(config: Config) -> Architecture:
    """Falcon, but for those with biases for distances: ids i64[batch, length] -> logits f32[batch, length, words]."""
    d, heads = config.size("hidden_size"), config.size("num_attention_heads")
    head = max(1, d // heads)
    config.known("alibi", False, default=False)
    is_new = config.flag("new_decoder_architecture", False)
    is_grouped = is_new or config.flag("multi_query", True)
    kv_heads = config.size("num_kv_heads", heads) if is_new else 1 if is_grouped else heads
    is_beside = is_new or config.flag("parallel_attn", True)
    names = dict(BLOOM)
    if is_new and config.size("num_ln_in_parallel_attn", 2) == 2:
        names |= {"norm_a": "ln_attn", "norm_b": "ln_mlp"}
    elif is_beside:
        names["norm_b"] = "input_layernorm"
    block = Block(
        names=names,
        d=d,
        inner=config.size("ffn_hidden_size", 4 * d),
        keys=kv_heads * head,
        act=ACTIVATIONS[config.known("activation", *ACTIVATIONS, default="gelu")],
        eps=config.number("layer_norm_epsilon", 1e-5),
        norms="beside" if is_beside else "before",
        unbiased=frozenset() if config.flag("bias", False) else frozenset(("qkv", "out", "up", "down")),
        split=lambda x: by_group(x, heads, kv_heads) if is_grouped else by_head(x, heads),
    )
    head_name = "word_embeddings.weight" if config.flag("tie_word_embeddings", True) else "lm_head.weight"
    return stacked(
        config, block, "transformer.", "h", {"embed": "word_embeddings", "last": "ln_f", "head": head_name},
        heads=heads, kv_heads=kv_heads, is_turning=True,
    )  # fmt: skip


def bloom(config: Config) -> Architecture:
    """BLOOM, which knows places by biases for distances: ids i64[batch, length] -> logits f32[batch, length, words]."""
    newer = {"n_head": "num_attention_heads", "n_layer": "num_hidden_layers", "hidden_size": "n_embed"}
    rows = {**config.rows, **{name: config.rows.get(name, config.rows.get(other)) for name, other in newer.items()}}
    rows["num_hidden_layers"] = rows["n_layer"]
    config = Config(rows, config.faults)
    d, heads = config.size("hidden_size"), config.size("n_head")
    config.known("apply_residual_connection_post_layernorm", False, default=False)
    config.known("tie_word_embeddings", True, default=True)
    block = Block(
        names=BLOOM,
        d=d,
        inner=4 * d,
        act=ACTIVATIONS["gelu_new"],
        eps=config.number("layer_norm_epsilon", 1e-5),
        split=lambda x: by_head(x, heads),
    )
    names = {
        "embed": "word_embeddings",
        "first": "word_embeddings_layernorm",
        "last": "ln_f",
        "head": "word_embeddings.weight",
    }
    return stacked(
        config, block, "transformer.", "h", names, heads=heads, is_turning=False, sight=Sight(slopes=slopes(heads))
    )


def stacked(
    config: Config,
    block: Block,
    prefix: str,
    stack: str,
    names: dict[str, str],
    *,
    heads: int,
    kv_heads: int | None = None,
    is_turning: bool,
    sight: Sight = ORDINARY,
) -> Architecture:
    """A decoder of equal layers.

    Args:
        stack: What stands before the number of a layer.
        names: Of the embedding, a norm behind it (`first`), the last norm, the weight that gives logits (`head`) and their bias.
        is_turning: Whether positions turn queries and keys; without it a text may be of any length.
    """
    d, words, count = block.d, config.size("vocab_size"), config.size("num_hidden_layers")
    head, kv_heads = max(1, d // heads), kv_heads or heads
    room = config.size("max_position_embeddings", 2048) if is_turning else None
    shapes: dict[str, tuple[int, ...]] = {
        f"{names['embed']}.weight": (words, d),
        names["head"]: (words, d),
        **norm_shapes(names["last"], d),
        **(norm_shapes(names["first"], d) if "first" in names else {}),
        **({names["bias"]: (words,)} if "bias" in names else {}),
    }
    for n in range(count):
        shapes |= block.shapes(f"{stack}.{n}")
    rope = turning(config, head, room) if room is not None else None

    def layers(parameters: Parameters, ids: Any, positions: Any, attend: Attend) -> Any:
        h = nn.embedding(ids, parameters[f"{names['embed']}.weight"])
        h = norm(parameters, names["first"], h, block.eps) if "first" in names else h
        for n in range(count):

            def seen(q: Any, k: Any, v: Any, n: int = n) -> Any:
                q, k = (x if rope is None else rope(x, positions) for x in (q, k))
                return attend(n, q, k, v)

            h = block(parameters, f"{stack}.{n}", h, seen)
        return norm(parameters, names["last"], h, block.eps)

    return decoder(
        shapes, prefix, layers, names["head"],
        heads=heads, kv_heads=kv_heads, head=head, count=count, positions=room, sight=sight, bias_name=names.get("bias"),
    )  # fmt: skip


def by_head(x: Any, heads: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values of a product that has a head's one after another."""
    parts = rlx.reshape(x, (*x.shape[:-1], heads, 3, -1))
    q, k, v = (rlx.reshape(parts[..., n, :], (*x.shape[:-1], -1)) for n in range(3))
    return q, k, v


def by_group(x: Any, heads: int, groups: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values of a product that has the queries of a group before its key and its value."""
    parts = rlx.reshape(x, (*x.shape[:-1], groups, heads // groups + 2, -1))
    q, k, v = (
        rlx.reshape(each, (*x.shape[:-1], -1)) for each in (parts[..., :-2, :], parts[..., -2, :], parts[..., -1, :])
    )
    return q, k, v


def slopes(heads: int) -> np.ndarray:
    """What a step of distance costs each head's scores, f32[heads].

    Those of a power of two of heads fall evenly from head to head to 2⁻⁸; the other heads get every second one of twice as many.

    Source: Press, Smith, Lewis 2022, "Train Short, Test Long", arXiv:2108.12409.
    """
    even = 1 << (heads.bit_length() - 1)
    own = 2.0 ** (-8.0 / even * np.arange(1, even + 1))
    more = 2.0 ** (-4.0 / even * np.arange(1, 2 * (heads - even) + 1, 2))
    return np.concatenate([own, more]).astype(np.float32)
