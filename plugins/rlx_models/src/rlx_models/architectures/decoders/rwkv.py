"""RWKV-4: a decoder with a weighted mean over past tokens in place of attention, computed as a recurrence.

Source:
    Peng et al. 2023, "RWKV: Reinventing RNNs for the Transformer Era", arXiv:2305.13048, section 3 and appendix D (stable sums).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_models.architectures.architecture import Architecture
from rlx_models.architectures.decoders.recurrent import State, StateShape, recurrent_lm
from rlx_models.checkpoints import Config
from rlx_models.layers.linear import Parameters, layer_norm, layer_norm_shapes, linear, linear_shapes

MIN_KEY: Final = -1e38
"""The maximum key before the first token; decays can be added to it without overflow in f32."""


@frozen(kw_only=True)
class RwkvLayer:
    """A layer without its norms and residuals.

    Attributes:
        hidden_size, attention_hidden_size: Features of the layer, and of keys and values.
        intermediate_size: Features within channel mixing.
    """

    hidden_size: int
    attention_hidden_size: int
    intermediate_size: int

    @property
    def state(self) -> StateShape:
        """The last features of both sublayers; weighted sum, sum of weights and maximum key.

        The sums are of exponentials relative to the maximum key.
        """
        return (2, self.hidden_size), (3, self.attention_hidden_size)

    def shapes(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the layer `prefix`."""
        time, channel = f"{prefix}.attention", f"{prefix}.feed_forward"
        d, keys = self.hidden_size, self.attention_hidden_size
        mixes = [f"{time}.time_mix_{part}" for part in ("key", "value", "receptance")]
        mixes += [f"{channel}.time_mix_{part}" for part in ("key", "receptance")]
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(mixes, (1, 1, d))
        shapes |= {f"{time}.time_decay": (keys,), f"{time}.time_first": (keys,)}
        for part in ("key", "value", "receptance"):
            shapes |= linear_shapes(f"{time}.{part}", keys, d, has_bias=False)
        return {
            **shapes,
            **linear_shapes(f"{time}.output", d, keys, has_bias=False),
            **linear_shapes(f"{channel}.key", self.intermediate_size, d, has_bias=False),
            **linear_shapes(f"{channel}.receptance", d, d, has_bias=False),
            **linear_shapes(f"{channel}.value", d, self.intermediate_size, has_bias=False),
        }

    def time_mixing(
        self, parameters: Parameters, prefix: str, x: Any, last: Any, sums: Any, mask: Any
    ) -> tuple[Any, tuple[Any, Any]]:
        """Return f32[batch, length, hidden_size], with the last features and the sums after the last token."""
        inputs = rlx.concat([last, x], axis=1)
        parts = ("key", "value", "receptance")
        key, value, receptance = (shifted(parameters, prefix, part, x, inputs[:, :-1]) for part in parts)
        decay, bonus = -rlx.exp(parameters[f"{prefix}.time_decay"]), parameters[f"{prefix}.time_first"]
        means, new_sums = running_means(decay, bonus, key, value, sums, mask)
        y = linear(parameters, f"{prefix}.output", rlx.sigmoid(receptance) * means)
        return y, (inputs[:, -1:], new_sums)

    def channel_mixing(self, parameters: Parameters, prefix: str, x: Any, last: Any) -> tuple[Any, Any]:
        """Return f32[batch, length, hidden_size], and the last features."""
        inputs = rlx.concat([last, x], axis=1)
        parts = ("key", "receptance")
        key, receptance = (shifted(parameters, prefix, part, x, inputs[:, :-1]) for part in parts)
        y = linear(parameters, f"{prefix}.value", rlx.relu(key) ** 2)
        return rlx.sigmoid(receptance) * y, inputs[:, -1:]


def shifted(parameters: Parameters, prefix: str, part: str, x: Any, previous: Any) -> Any:
    """Return the linear layer `part` of features mixed with those of the token before (token shift)."""
    share = parameters[f"{prefix}.time_mix_{part}"]
    return linear(parameters, f"{prefix}.{part}", x * share + previous * (1.0 - share))


def running_means(decay: Any, bonus: Any, key: Any, value: Any, sums: Any, mask: Any) -> tuple[Any, Any]:
    """Return at each token the mean of values weighted by exponentials of keys, f32[batch, length, keys], and the last sums.

    Args:
        decay, bonus: f32[keys]: added to the exponents of earlier tokens at each token, and to that of the present one.
        key, value: f32[batch, length, keys].
        sums: State before the first token, f32[batch, 3, keys].
        mask: 0 for padding, f32[batch, length, 1]. Padding does not change the sums.
    """
    total, weight = sums[:, 0], sums[:, 1]
    # A cache begins as zeros: a weight of 0 means that there is no token before, and no maximum key.
    maximum = rlx.where(weight > 0, sums[:, 2], MIN_KEY)

    def step(carry: tuple[Any, Any, Any], inputs: tuple[Any, Any, Any]) -> tuple[tuple[Any, Any, Any], Any]:
        (total, weight, maximum), (k, v, is_token) = carry, inputs
        top = rlx.maximum(maximum, k + bonus)
        past, present = rlx.exp(maximum - top), rlx.exp(k + bonus - top)
        mean = (past * total + present * v) / (past * weight + present)
        top = rlx.maximum(maximum + decay, k)
        past, present = rlx.exp(maximum + decay - top), rlx.exp(k - top)
        updated = past * total + present * v, past * weight + present, top
        result = tuple(rlx.where(is_token > 0, new, old) for new, old in zip(updated, carry, strict=True))
        return (result[0], result[1], result[2]), mean

    rows = tuple(rlx.permute_dims(each, (1, 0, 2)) for each in (key, value, mask))
    new_sums, means = rlx.scan(step, (total, weight, maximum), rows)
    return rlx.permute_dims(means, (1, 0, 2)), rlx.stack(list(new_sums), axis=1)


@frozen(kw_only=True)
class Rwkv:
    """The decoder.

    Attributes:
        rescale_every: Hidden states are halved after every n-th layer; 0: never.
    """

    vocab_size: int
    num_layers: int
    layer: RwkvLayer
    eps: float
    rescale_every: int
    is_tied: bool

    @property
    def state(self) -> StateShape:
        return self.layer.state

    @property
    def lm_head(self) -> str:
        return "embeddings.weight" if self.is_tied else "head.weight"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        d = self.layer.hidden_size
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("embeddings.weight", self.lm_head), (self.vocab_size, d))
        norms = (f"blocks.{n}.{part}" for n in range(self.num_layers) for part in ("ln1", "ln2"))
        for name in ("blocks.0.pre_ln", "ln_out", *norms):
            shapes |= layer_norm_shapes(name, d)
        for n in range(self.num_layers):
            shapes |= self.layer.shapes(f"blocks.{n}")
        return shapes

    def hidden_states(
        self, parameters: Parameters, input_ids: Any, mask: Any, states: Sequence[State]
    ) -> tuple[Any, list[State]]:
        h = nn.embedding(input_ids, parameters["embeddings.weight"])
        h = layer_norm(parameters, "blocks.0.pre_ln", h, self.eps)
        every = self.rescale_every
        updated: list[State] = []
        for n, (last, sums) in enumerate(states):
            prefix = f"blocks.{n}"
            # Hidden states are halved as in Transformers, because halving changes the effect of `eps` in the norms.
            scale = 0.5 ** (n // every if every else 0)
            x = layer_norm(parameters, f"{prefix}.ln1", h, self.eps) * mask
            y, (first, new_sums) = self.layer.time_mixing(parameters, f"{prefix}.attention", x, last[:, :1], sums, mask)
            h = h + y * scale
            x = layer_norm(parameters, f"{prefix}.ln2", h, self.eps) * mask
            y, second = self.layer.channel_mixing(parameters, f"{prefix}.feed_forward", x, last[:, 1:])
            h = h + y * scale
            h = h * 0.5 if every and (n + 1) % every == 0 else h
            updated.append((rlx.concat([first, second], axis=1), new_sums))
        return layer_norm(parameters, "ln_out", h, self.eps), updated


def rwkv(config: Config) -> Architecture:
    """Return RWKV-4: input_ids i64[batch, length] -> logits f32[batch, length, vocab_size]."""
    hidden_size = config.size("hidden_size")
    layer = RwkvLayer(
        hidden_size=hidden_size,
        attention_hidden_size=config.size("attention_hidden_size", hidden_size),
        intermediate_size=config.size("intermediate_size", 4 * hidden_size),
    )
    model = Rwkv(
        vocab_size=config.size("vocab_size"),
        num_layers=config.size("num_hidden_layers"),
        layer=layer,
        eps=config.number("layer_norm_epsilon", 1e-5),
        rescale_every=int(config.number("rescale_every", 6)),
        is_tied=config.flag("tie_word_embeddings", False),
    )
    return recurrent_lm(model, "rwkv.", ("head.weight",) if model.is_tied else ())
