"""ModernBERT: an encoder with turned queries and keys, gated nets, and windows in most of its layers."""

from __future__ import annotations

from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import Fact
from rlx_models.architectures.bert import UNUSED
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import ACTIVATIONS, Architecture, Parameters, layer_shapes, linear, norm
from rlx_models.layers.rope import rotary

__all__ = ["modernbert"]

FULL, NEAR = "full_attention", "sliding_attention"


def modernbert(config: Config) -> Architecture:
    """ids i64[batch, length], mask i64[batch, length] (0 for padding) -> f32[batch, length, hidden_size]."""
    d, inner, heads, count = (
        config.size(name) for name in ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
    )
    act = ACTIVATIONS[config.known("hidden_activation", *ACTIVATIONS, default="gelu")]
    eps, room = config.number("norm_eps", 1e-5), config.size("max_position_embeddings", 8192)
    reach = config.size("local_attention", 128) // 2
    biases = {name: config.flag(name, False) for name in ("attention_bias", "mlp_bias", "norm_bias")}
    every = config.size("global_attn_every_n_layers", 3)
    kinds = config.rows.get("layer_types") or [NEAR if n % every else FULL for n in range(count)]
    if len(kinds) != count:
        config.faults.append(Fact("layer_types", f"{len(kinds)} of them for {count} layers"))
    kinds = [Config({"layer_types": kind}, config.faults).known("layer_types", FULL, NEAR) for kind in kinds]
    older = {FULL: config.number("global_rope_theta", 160000.0), NEAR: config.number("local_rope_theta", 10000.0)}
    said = config.rows.get("rope_parameters") or {}
    ropes = {
        kind: rotary(Config({"rope_theta": older[kind], **(said.get(kind) or {})}, config.faults), d // heads, room)
        for kind in sorted(set(kinds))
    }
    shapes: dict[str, tuple[int, ...]] = {"embeddings.tok_embeddings.weight": (config.size("vocab_size"), d)}
    norms = ["embeddings.norm", "final_norm"]
    for n in range(count):
        at = f"layers.{n}"
        sizes = {"attn.Wqkv": (3 * d, d), "attn.Wo": (d, d), "mlp.Wi": (2 * inner, d), "mlp.Wo": (d, inner)}
        for name, (outputs, inputs) in sizes.items():
            has_bias = biases["attention_bias" if name.startswith("attn") else "mlp_bias"]
            shapes |= layer_shapes(f"{at}.{name}", outputs, inputs, has_bias=has_bias)
        norms += [f"{at}.mlp_norm", *([f"{at}.attn_norm"] if n else [])]
    parts = ("weight", "bias") if biases["norm_bias"] else ("weight",)
    shapes |= {f"{name}.{part}": (d,) for name in norms for part in parts}

    def function(parameters: Parameters, ids: Any, mask: Any) -> Any:
        real, places = rlx.not_equal(mask, 0), rlx.arange(ids.shape[1])
        near = rlx.abs(places[:, None] - places[None, :]) <= reach
        seen = {FULL: real, NEAR: rlx.logical_and(real[:, None, None, :], near[None, None])}
        h = norm(parameters, "embeddings.norm", nn.embedding(ids, parameters["embeddings.tok_embeddings.weight"]), eps)
        for n, kind in enumerate(kinds):
            at = f"layers.{n}"
            given = norm(parameters, f"{at}.attn_norm", h, eps) if n else h  # the first was normed as an embedding
            q, k, v = rlx.split(linear(parameters, f"{at}.attn.Wqkv", given), 3, axis=-1)
            q, k = (ropes[kind](x, places) for x in (q, k))
            h = h + linear(parameters, f"{at}.attn.Wo", nn.attention(q, k, v, num_heads=heads, mask=seen[kind]))
            both = linear(parameters, f"{at}.mlp.Wi", norm(parameters, f"{at}.mlp_norm", h, eps))
            up, gate = rlx.split(both, 2, axis=-1)
            h = h + linear(parameters, f"{at}.mlp.Wo", act(up) * gate)
        return norm(parameters, "final_norm", h, eps)

    spec = rlx.spec("i64[batch, length]")
    return Architecture(shapes, "model.", (*UNUSED, "head.", "decoder."), {"ids": spec, "mask": spec}, function)
