"""Llama and its kin: decoders with RMS norms, gated nets, and positions that turn queries and keys."""

from __future__ import annotations

import math
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import Fact
from rlx_torch.pretrained.decoders import Attend, Sight, decoder
from rlx_torch.pretrained.experts import Experts
from rlx_torch.pretrained.folder import Config
from rlx_torch.pretrained.parts import ACTIVATIONS, Architecture, Parameters, linear, turning

__all__ = ["llama"]

GEMMAS = ("gemma", "gemma2")
SEEING = ("sliding_attention", "full_attention")


def llama(config: Config) -> Architecture:
    """Llama, Mistral, Mixtral, Qwen 2 and 3, Gemma (1, 2), Phi 3: ids i64[batch, length] -> logits f32[batch, length, words]."""
    kind = config.rows.get("model_type")
    d, inner, count = config.size("hidden_size"), config.size("intermediate_size"), config.size("num_hidden_layers")
    heads = config.size("num_attention_heads")
    kv_heads, head = (
        config.size("num_key_value_heads", heads),
        config.size("head_dim", 256 if kind in GEMMAS else max(1, d // heads)),
    )
    eps, words = config.number("rms_norm_eps", 1e-6), config.size("vocab_size")
    is_gemma, is_gemma2, is_phi3 = kind in GEMMAS, kind == "gemma2", kind == "phi3"
    act = ACTIVATIONS[config.known("hidden_act", *ACTIVATIONS, default="gelu" if is_gemma else "silu")]
    if is_gemma:
        act = ACTIVATIONS["gelu_pytorch_tanh"]  # whatever files say: the first ones say gelu, and mean this
        config.known("hidden_activation", None, "gelu_pytorch_tanh")
    room = config.size("max_position_embeddings", 2048)
    experts = None
    if kind == "mixtral":
        chosen = config.size("num_experts_per_tok", 2)
        experts = Experts(count=config.size("num_local_experts", 8), chosen=chosen, d=d, inner=inner, act=act)
    rope = turning(config, head, room)
    config.known("use_sliding_window", False, None, default=False)
    sight = sight_of(config, count)
    has_bias = kind == "qwen2" or config.flag("attention_bias", False)
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (words, d), "norm.weight": (d,)}
    is_tied = config.flag("tie_word_embeddings", is_gemma)
    if not is_tied:
        shapes["lm_head.weight"] = (words, d)
    for n in range(count):
        at = f"layers.{n}"
        sizes = (("qkv", heads + 2 * kv_heads),) if is_phi3 else (("q", heads), ("k", kv_heads), ("v", kv_heads))
        for name, size in sizes:
            shapes[f"{at}.self_attn.{name}_proj.weight"] = (size * head, d)
            if has_bias:
                shapes[f"{at}.self_attn.{name}_proj.bias"] = (size * head,)
            if kind == "qwen3" and name != "v":
                shapes[f"{at}.self_attn.{name}_norm.weight"] = (head,)
        shapes[f"{at}.self_attn.o_proj.weight"] = (d, heads * head)
        if has_bias and kind != "qwen2":
            shapes[f"{at}.self_attn.o_proj.bias"] = (d,)
        if experts is not None:
            shapes |= experts.shapes(f"{at}.block_sparse_moe")
        elif is_phi3:
            shapes |= {f"{at}.mlp.gate_up_proj.weight": (2 * inner, d), f"{at}.mlp.down_proj.weight": (d, inner)}
        else:
            shapes |= {f"{at}.mlp.{name}_proj.weight": (inner, d) for name in ("gate", "up")}
            shapes[f"{at}.mlp.down_proj.weight"] = (d, inner)
        norms = ("input", "post_attention", *(("pre_feedforward", "post_feedforward") if is_gemma2 else ()))
        shapes |= {f"{at}.{name}_layernorm.weight": (d,) for name in norms}
    config.known("mlp_bias", False, default=False)

    def turned(x: Any, positions: Any, gain: Any) -> Any:
        if gain is not None:  # each head is normed by itself
            x = rlx.reshape(nn.rms_norm(rlx.reshape(x, (*x.shape[:-1], -1, head)), gain, eps=eps), x.shape)
        return rope(x, positions)

    def normed(parameters: Parameters, name: str, x: Any) -> Any:
        gain = parameters[f"{name}.weight"]
        return nn.rms_norm(x, gain + 1.0 if is_gemma else gain, eps=eps)

    def fed(parameters: Parameters, at: str, x: Any) -> Any:
        if experts is not None:
            return experts(parameters, f"{at}.block_sparse_moe", x)
        if is_phi3:
            gate, up = rlx.split(linear(parameters, f"{at}.mlp.gate_up_proj", x), 2, axis=-1)
        else:
            gate, up = (linear(parameters, f"{at}.mlp.{name}_proj", x) for name in ("gate", "up"))
        return linear(parameters, f"{at}.mlp.down_proj", act(gate) * up)

    def layers(parameters: Parameters, ids: Any, positions: Any, attend: Attend) -> Any:
        h = nn.embedding(ids, parameters["embed_tokens.weight"])
        h = h * math.sqrt(d) if is_gemma else h
        for n in range(count):
            at = f"layers.{n}"
            given = normed(parameters, f"{at}.input_layernorm", h)
            if is_phi3:
                both = linear(parameters, f"{at}.self_attn.qkv_proj", given)
                q, k, v = rlx.split(both, [heads * head, (heads + kv_heads) * head], axis=-1)
            else:
                q, k, v = (linear(parameters, f"{at}.self_attn.{name}_proj", given) for name in "qkv")
            gains = (parameters.get(f"{at}.self_attn.{name}_norm.weight") for name in "qk")
            q, k = (turned(x, positions, gain) for x, gain in zip((q, k), gains, strict=True))
            seen = linear(parameters, f"{at}.self_attn.o_proj", attend(n, q, k, v))
            if is_gemma2:  # what is added is normed too
                h = h + normed(parameters, f"{at}.post_attention_layernorm", seen)
                up = fed(parameters, at, normed(parameters, f"{at}.pre_feedforward_layernorm", h))
                h = h + normed(parameters, f"{at}.post_feedforward_layernorm", up)
            else:
                h = h + seen
                h = h + fed(parameters, at, normed(parameters, f"{at}.post_attention_layernorm", h))
        return normed(parameters, "norm", h)

    name = "embed_tokens.weight" if is_tied else "lm_head.weight"
    return decoder(
        shapes, "model.", layers, name,
        heads=heads, kv_heads=kv_heads, head=head, count=count, positions=room, sight=sight,
    )  # fmt: skip


def sight_of(config: Config, count: int) -> Sight:
    """How the layers of a configuration of Mistral's, Phi's or Gemma 2's see; others see everything before."""
    kind = config.rows.get("model_type")
    if kind not in ("mistral", "mixtral", "phi3", "gemma2"):
        return Sight()
    usual = None if kind in ("phi3", "mixtral") else 4096
    window = None if config.rows.get("sliding_window", usual) is None else config.size("sliding_window", usual)
    if kind != "gemma2":
        return Sight((window,) * count)
    names = config.rows.get("layer_types") or ["full_attention" if n % 2 else "sliding_attention" for n in range(count)]
    if len(names) != count:
        config.faults.append(Fact("layer_types", f"{len(names)} of them for {count} layers"))
    known = [Config({"layer_types": name}, config.faults).known("layer_types", *SEEING) for name in names]
    scale = config.number("query_pre_attn_scalar", 256) ** -0.5
    scores_cap, logits_cap = (
        cap(config, name, usual)
        for name, usual in (("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0))
    )
    return Sight(tuple(window if name == SEEING[0] else None for name in known), scale, scores_cap, logits_cap)


def cap(config: Config, name: str, usual: float) -> float | None:
    """A number, or `None` where a configuration says that there is none."""
    return None if config.rows.get(name, usual) is None else config.number(name, usual)
