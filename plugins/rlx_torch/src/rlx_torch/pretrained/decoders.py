"""Decoders: what continues a text. Their layers are one function, whether all of a text is given or its next token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_torch.pretrained.blocks import Block
from rlx_torch.pretrained.caching import Cached
from rlx_torch.pretrained.folder import Config, Shapes
from rlx_torch.pretrained.parts import ACTIVATIONS, Architecture, Decoding, Parameters, norm, norm_shapes

__all__ = ["ORDINARY", "Attend", "Sight", "decoder", "gpt2"]

UNUSED = (
    "attn.bias",
    "attn.masked_bias",
    "attention.bias",
    "attention.masked_bias",
    "rotary_emb.inv_freq",
    "score.weight",
)

GPT2 = {
    "qkv": "attn.c_attn",
    "out": "attn.c_proj",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
    "norm_a": "ln_1",
    "norm_b": "ln_2",
}
"""What the parts of a layer are called."""

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
        slopes: What a step of distance costs each head's scores, f32[heads].
    """

    windows: tuple[int | None, ...] = ()
    scale: float | None = None
    cap: float | None = None
    logits_cap: float | None = None
    slopes: np.ndarray | None = field(default=None, eq=False)

    def window(self, number: int) -> int | None:
        return self.windows[number] if self.windows else None

    @property
    def scores(self) -> dict[str, Any]:
        """What `nn.attention` is told of scores."""
        return {"scale": self.scale, "softcap": self.cap}

    def biases(self, queries: Any, keys: Any) -> Any:
        """Those of scores f32[1, heads, queries, keys] between places; `None` where distances cost nothing."""
        if self.slopes is None:
            return None
        return self.slopes[None, :, None, None] * rlx.astype(keys[None, :] - queries[:, None], rlx.f32)


ORDINARY: Final = Sight()
"""Everything before, scores of the root of a head's features, no caps."""


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
    positions: int | None,
    sight: Sight = ORDINARY,
    bias_name: str | None = None,
) -> Architecture:
    """A decoder of its layers.

    Args:
        head_name: The tensor whose rows are multiplied with the features to give logits.
        heads, kv_heads, head: Heads of queries, of keys and values, and the features of one.
        count: Layers.
        positions: The most tokens of a text, where there is such a number.
        sight: How layers see, where that is not as usual.
        bias_name: The bias of the logits, where they have one.
    """

    def logits(parameters: Parameters, h: Any) -> Any:
        found = h @ rlx.matrix_transpose(parameters[head_name])
        return capped(found if bias_name is None else found + parameters[bias_name], sight.logits_cap)

    def function(parameters: Parameters, ids: Any) -> Any:
        places = rlx.arange(ids.shape[1])
        biases = sight.biases(places, places)

        def attend(number: int, q: Any, k: Any, v: Any) -> Any:
            window = sight.window(number)
            before = None if window is None else window - 1  # which is how many besides its own
            return nn.attention(
                q, k, v, num_heads=heads, num_kv_heads=kv_heads, causal=True, window=before, bias=biases, **sight.scores
            )

        return logits(parameters, layers(parameters, ids, places, attend))

    def step(
        parameters: Parameters, ids: Any, padding: Any, cache: Sequence[tuple[Any, Any]], at: Any
    ) -> tuple[Any, list[tuple[Any, Any]]]:
        cached = Cached(cache, at, padding, ids.shape[1], heads, kv_heads)
        biases = sight.biases(cached.places, cached.room)

        def attend(number: int, q: Any, k: Any, v: Any) -> Any:
            return cached(number, q, k, v, window=sight.window(number), bias=biases, **sight.scores)

        h = layers(parameters, ids, cached.positions, attend)
        return logits(parameters, h[:, -1]), cached.kept

    decoding = Decoding(step, kv_heads * head, count, positions)
    unused = (*UNUSED, *(() if "lm_head.weight" in shapes else ("lm_head.weight",)))
    return Architecture(shapes, prefix, unused, {"ids": IDS}, function, decoding)


def gpt2(config: Config) -> Architecture:
    """GPT-2: ids i64[batch, length] -> logits f32[batch, length, words]. Its products have weights `[inputs, outputs]`."""
    d, heads, count = config.size("n_embd"), config.size("n_head"), config.size("n_layer")
    inner, room = config.size("n_inner", 4 * d), config.size("n_positions")
    act = ACTIVATIONS[config.known("activation_function", *ACTIVATIONS, default="gelu_new")]
    eps = config.number("layer_norm_epsilon", 1e-5)
    config.known("scale_attn_weights", True, default=True)
    config.known("scale_attn_by_inverse_layer_idx", False, default=False)
    block = Block(
        names=GPT2, d=d, inner=inner, act=act, eps=eps, split=lambda x: rlx.split(x, 3, axis=-1), is_turned=True
    )
    shapes: dict[str, tuple[int, ...]] = {
        "wte.weight": (config.size("vocab_size"), d),
        "wpe.weight": (room, d),
        **norm_shapes("ln_f", d),
    }
    for n in range(count):
        shapes |= block.shapes(f"h.{n}")

    def layers(parameters: Parameters, ids: Any, positions: Any, attend: Attend) -> Any:
        h = nn.embedding(ids, parameters["wte.weight"]) + nn.embedding(positions, parameters["wpe.weight"])
        for n in range(count):
            h = block(parameters, f"h.{n}", h, partial(attend, n))
        return norm(parameters, "ln_f", h, eps)

    return decoder(
        shapes, "transformer.", layers, "wte.weight",
        heads=heads, kv_heads=heads, head=d // heads, count=count, positions=room,
    )  # fmt: skip
