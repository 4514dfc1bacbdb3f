"""Decoders: what continues a text. Their layers are one function, whether all of a text is given or its next token."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import Fact
from rlx_torch.pretrained.caching import Cached
from rlx_torch.pretrained.folder import Config, Shapes
from rlx_torch.pretrained.parts import ACTIVATIONS, Architecture, Decoding, Parameters, linear, norm, tables_of_rope

__all__ = ["gpt2", "llama"]

UNUSED = ("attn.bias", "attn.masked_bias", "rotary_emb.inv_freq", "score.weight")

GEMMAS = ("gemma", "gemma2")
SEEING = ("sliding_attention", "full_attention")

IDS = rlx.spec("i64[batch, length]")

Attend = Callable[[int, Any, Any, Any], Any]
"""What a layer, by its number, sees: of queries, keys and values `[batch, steps, heads · head]`."""


@frozen
class Sight:
    """How the layers of a decoder see a text.

    Attributes:
        windows: Of each layer, how many tokens before its own place, that one included, a query sees; `None` is all of them.
        scale: What scores are multiplied with; by default one over the root of a head's features.
        cap: c in `c·tanh(scores / c)`.
        logits_cap: The same of logits.
    """

    windows: tuple[int | None, ...] = ()
    scale: float | None = None
    cap: float | None = None
    logits_cap: float | None = None

    def window(self, number: int) -> int | None:
        return self.windows[number] if self.windows else None

    @property
    def scores(self) -> dict[str, Any]:
        """What `nn.attention` is told of scores."""
        return {"scale": self.scale, "softcap": self.cap}


def capped(x: Any, cap: float | None) -> Any:
    return x if cap is None else rlx.tanh(x / cap) * cap


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
    sight: Sight = Sight(),
) -> Architecture:
    """A decoder of its layers.

    Args:
        head_name: The tensor whose rows are multiplied with the features to give logits.
        heads, kv_heads, head: Heads of queries, of keys and values, and the features of one.
        count: Layers.
        positions: The most tokens of a text.
        sight: How layers see, where that is not as usual.
    """

    def logits(parameters: Parameters, h: Any) -> Any:
        return capped(h @ rlx.matrix_transpose(parameters[head_name]), sight.logits_cap)

    def function(parameters: Parameters, ids: Any) -> Any:
        def attend(number: int, q: Any, k: Any, v: Any) -> Any:
            window = sight.window(number)
            before = None if window is None else window - 1  # which is how many besides its own
            return nn.attention(
                q, k, v, num_heads=heads, num_kv_heads=kv_heads, causal=True, window=before, **sight.scores
            )

        return logits(parameters, layers(parameters, ids, rlx.arange(ids.shape[1]), attend))

    def step(
        parameters: Parameters, ids: Any, padding: Any, cache: Sequence[tuple[Any, Any]], at: Any
    ) -> tuple[Any, list[tuple[Any, Any]]]:
        cached = Cached(cache, at, padding, ids.shape[1], heads, kv_heads)

        def attend(number: int, q: Any, k: Any, v: Any) -> Any:
            return cached(number, q, k, v, window=sight.window(number), **sight.scores)

        h = layers(parameters, ids, cached.positions, attend)
        return logits(parameters, h[:, -1]), cached.kept

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


def sight_of(config: Config, count: int) -> Sight:
    """How the layers of a configuration of Mistral's, Phi's or Gemma 2's see; others see everything before."""
    kind = config.rows.get("model_type")
    if kind not in ("mistral", "phi3", "gemma2"):
        return Sight()
    usual = None if kind == "phi3" else 4096
    window = None if config.rows.get("sliding_window", usual) is None else config.size("sliding_window", usual)
    if kind != "gemma2":
        return Sight((window,) * count)
    names = config.rows.get("layer_types") or ["full_attention" if n % 2 else "sliding_attention" for n in range(count)]
    if len(names) != count:
        config.faults.append(Fact("layer_types", f"{len(names)} of them for {count} layers"))
    known = [Config({"layer_types": name}, config.faults).known("layer_types", *SEEING) for name in names]
    scale = config.number("query_pre_attn_scalar", 256) ** -0.5
    caps = [
        cap(config, name, usual)
        for name, usual in (("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0))
    ]
    return Sight(tuple(window if name == SEEING[0] else None for name in known), scale, *caps)


def cap(config: Config, name: str, usual: float) -> float | None:
    """A number, or `None` where a configuration says that there is none."""
    return None if config.rows.get(name, usual) is None else config.number(name, usual)


def turned_features(config: Config, head: int) -> int:
    """How many features of a head a position turns."""
    said = {**config.rows, **(config.rows.get("rope_parameters") or {})}
    return int(head * Config(said, config.faults).number("partial_rotary_factor", 1.0))


def llama(config: Config) -> Architecture:
    """Llama, Mistral, Qwen2, Qwen3, Gemma, Gemma 2 and Phi 3: ids i64[batch, length] -> logits f32[batch, length, words]."""
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
    turning = turned_features(config, head)
    cos, sin = tables_of_rope(config, head, room, turning)
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
        if is_phi3:
            shapes[f"{at}.mlp.gate_up_proj.weight"] = (2 * inner, d)
        else:
            shapes |= {f"{at}.mlp.{name}_proj.weight": (inner, d) for name in ("gate", "up")}
        shapes[f"{at}.mlp.down_proj.weight"] = (d, inner)
        norms = ("input", "post_attention", *(("pre_feedforward", "post_feedforward") if is_gemma2 else ()))
        shapes |= {f"{at}.{name}_layernorm.weight": (d,) for name in norms}
    config.known("mlp_bias", False, default=False)

    def turned(x: Any, positions: Any, gain: Any) -> Any:
        if gain is not None:  # each head is normed by itself
            x = rlx.reshape(nn.rms_norm(rlx.reshape(x, (*x.shape[:-1], -1, head)), gain, eps=eps), x.shape)
        rank = len(positions.shape)
        return nn.rope(x, cos, sin, positions if rank == 2 else None, head_dim=head, n_rot=turning)

    def normed(parameters: Parameters, name: str, x: Any) -> Any:
        gain = parameters[f"{name}.weight"]
        return nn.rms_norm(x, gain + 1.0 if is_gemma else gain, eps=eps)

    def fed(parameters: Parameters, at: str, x: Any) -> Any:
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
