"""RWKV-4: a decoder with a weighted mean over the past in place of attention, kept as a running sum.

Source:
    Peng et al. 2023, "RWKV: Reinventing RNNs for the Transformer Era", arXiv:2305.13048, section 3 and appendix D (stable sums).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_models.architectures.decoders.recurrent import State, recurrent
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import Architecture, Parameters, layer_shapes, linear, norm, norm_shapes

__all__ = ["rwkv"]

LOWEST: Final = -1e38
"""The greatest key before the first token: f32 has room for a decay below it."""


@frozen(kw_only=True)
class Mixing:
    """A layer without its norms and residuals.

    It keeps the last features of both parts f32[batch, 2, d], and the weighted sum, its weights and the greatest key
    f32[batch, 3, keys]: the sums are of exponentials relative to the greatest key.

    Attributes:
        d, keys, inner: Features between layers, of keys and values, and within the net.
    """

    d: int
    keys: int
    inner: int

    def shapes(self, at: str) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the layer called `at`."""
        time, channel = f"{at}.attention", f"{at}.feed_forward"
        mixes = [f"{time}.time_mix_{part}" for part in ("key", "value", "receptance")]
        mixes += [f"{channel}.time_mix_{part}" for part in ("key", "receptance")]
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(mixes, (1, 1, self.d))
        shapes |= {f"{time}.time_decay": (self.keys,), f"{time}.time_first": (self.keys,)}
        for part in ("key", "value", "receptance"):
            shapes |= layer_shapes(f"{time}.{part}", self.keys, self.d, has_bias=False)
        return {
            **shapes,
            **layer_shapes(f"{time}.output", self.d, self.keys, has_bias=False),
            **layer_shapes(f"{channel}.key", self.inner, self.d, has_bias=False),
            **layer_shapes(f"{channel}.receptance", self.d, self.d, has_bias=False),
            **layer_shapes(f"{channel}.value", self.d, self.inner, has_bias=False),
        }

    def attention(
        self, parameters: Parameters, at: str, x: Any, last: Any, sums: Any, real: Any
    ) -> tuple[Any, tuple[Any, Any]]:
        """Return f32[batch, steps, d], with the last features and the sums behind the last step."""
        before = rlx.concat([last, x], axis=1)
        key, value, receptance = (
            linear(parameters, f"{at}.{part}", mixed(parameters, f"{at}.time_mix_{part}", x, before[:, :-1]))
            for part in ("key", "value", "receptance")
        )
        means, after = running_means(
            -rlx.exp(parameters[f"{at}.time_decay"]), parameters[f"{at}.time_first"], key, value, sums, real
        )
        return linear(parameters, f"{at}.output", rlx.sigmoid(receptance) * means), (before[:, -1:], after)

    def net(self, parameters: Parameters, at: str, x: Any, last: Any) -> tuple[Any, Any]:
        """Return f32[batch, steps, d], and the last features."""
        before = rlx.concat([last, x], axis=1)
        key, receptance = (
            linear(parameters, f"{at}.{part}", mixed(parameters, f"{at}.time_mix_{part}", x, before[:, :-1]))
            for part in ("key", "receptance")
        )
        y = linear(parameters, f"{at}.value", rlx.relu(key) ** 2)
        return rlx.sigmoid(receptance) * y, before[:, -1:]


def mixed(parameters: Parameters, name: str, x: Any, before: Any) -> Any:
    """Return features mixed with those of the token before."""
    share = parameters[name]
    return x * share + before * (1.0 - share)


def running_means(decay: Any, first: Any, key: Any, value: Any, sums: Any, real: Any) -> tuple[Any, Any]:
    """Return at each step the mean of values weighted by exponentials of keys, f32[batch, steps, keys], and the last sums.

    Args:
        decay, first: f32[keys]: the change of the exponents of earlier tokens a step, and what is added to that of the present.
        key, value: f32[batch, steps, keys].
        sums: Those before the first step f32[batch, 3, keys].
        real: Which steps are no padding, f32[batch, steps, 1]. Padding changes no sums.
    """
    total, weight = sums[:, 0], sums[:, 1]
    # A cache begins as zeros: no weight means that nothing was summed, and that there is no greatest key.
    greatest = rlx.where(weight > 0, sums[:, 2], LOWEST)

    def step(carry: tuple[Any, Any, Any], given: tuple[Any, Any, Any]) -> tuple[tuple[Any, Any, Any], Any]:
        (total, weight, greatest), (k, v, is_real) = carry, given
        top = rlx.maximum(greatest, k + first)
        past, present = rlx.exp(greatest - top), rlx.exp(k + first - top)
        mean = (past * total + present * v) / (past * weight + present)
        top = rlx.maximum(greatest + decay, k)
        past, present = rlx.exp(greatest + decay - top), rlx.exp(k - top)
        after = past * total + present * v, past * weight + present, top
        kept = tuple(rlx.where(is_real > 0, new, old) for new, old in zip(after, carry, strict=True))
        return (kept[0], kept[1], kept[2]), mean

    rows = tuple(rlx.permute_dims(each, (1, 0, 2)) for each in (key, value, real))
    after, means = rlx.scan(step, (total, weight, greatest), rows)
    return rlx.permute_dims(means, (1, 0, 2)), rlx.stack(list(after), axis=1)


def rwkv(config: Config) -> Architecture:
    """Return RWKV-4: ids i64[batch, length] -> logits f32[batch, length, words]."""
    d, words, count = config.size("hidden_size"), config.size("vocab_size"), config.size("num_hidden_layers")
    layer = Mixing(d=d, keys=config.size("attention_hidden_size", d), inner=config.size("intermediate_size", 4 * d))
    eps = config.number("layer_norm_epsilon", 1e-5)
    every = int(config.number("rescale_every", 6))
    head = "embeddings.weight" if config.flag("tie_word_embeddings", False) else "head.weight"
    shapes: dict[str, tuple[int, ...]] = {"embeddings.weight": (words, d), head: (words, d)}
    for name in ("blocks.0.pre_ln", "ln_out", *(f"blocks.{n}.{part}" for n in range(count) for part in ("ln1", "ln2"))):
        shapes |= norm_shapes(name, d)
    for n in range(count):
        shapes |= layer.shapes(f"blocks.{n}")

    def layers(parameters: Parameters, ids: Any, real: Any, states: Sequence[State]) -> tuple[Any, list[State]]:
        h = norm(parameters, "blocks.0.pre_ln", nn.embedding(ids, parameters["embeddings.weight"]), eps)
        found: list[State] = []
        for n, (last, sums) in enumerate(states):
            at = f"blocks.{n}"
            # Halved features and outputs change the weight of `eps` in the norms, hence they are halved as in Transformers.
            scale = 0.5 ** (n // every if every else 0)
            x = norm(parameters, f"{at}.ln1", h, eps) * real
            y, (first, after) = layer.attention(parameters, f"{at}.attention", x, last[:, :1], sums, real)
            h = h + y * scale
            x = norm(parameters, f"{at}.ln2", h, eps) * real
            y, second = layer.net(parameters, f"{at}.feed_forward", x, last[:, 1:])
            h = h + y * scale
            h = h * 0.5 if every and (n + 1) % every == 0 else h
            found.append((rlx.concat([first, second], axis=1), after))
        return norm(parameters, "ln_out", h, eps), found

    unused = () if "head.weight" in shapes else ("head.weight",)
    return recurrent(shapes, "rwkv.", layers, head, count=count, pair=((2, d), (3, layer.keys)), unused=unused)
