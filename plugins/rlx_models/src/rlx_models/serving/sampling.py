"""`SlotSampler`: the next token of each slot, each with its options, in one program."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_models.serving.options import RequestOptions


class SlotSampler:
    """Options of sampling of all slots, as arrays; the tokens of a slot are those of `generate` with its options and key.

    Args:
        slots: The number of slots.
        vocab_size: The number of tokens.
        target: The target of the program.
    """

    def __init__(self, slots: int, vocab_size: int, target: str | None) -> None:
        self.target = target
        self._program = token_program(target)
        self._seeds = np.zeros(slots, np.uint64)
        self._counts = np.zeros(slots, np.int64)
        self._temperature = np.zeros(slots, np.float32)
        self._top_k = np.zeros(slots, np.int64)
        self._top_p = np.ones(slots, np.float32)
        self._log_min_p = np.full(slots, -np.inf, np.float32)
        self._penalty = np.ones(slots, np.float32)
        self._present = np.zeros((slots, vocab_size), np.bool_)
        self._bias = np.zeros((slots, vocab_size), np.float32)
        self._has_bias = np.zeros(slots, np.bool_)

    def assign(self, slot: int, prompt: Sequence[int], options: RequestOptions, seed: int, penalty: float) -> None:
        """Give a slot the options of a request."""
        self._seeds[slot], self._counts[slot] = np.uint64(seed % (1 << 64)), 0
        self._temperature[slot], self._top_k[slot], self._top_p[slot] = (
            options.temperature,
            options.top_k,
            options.top_p,
        )
        self._log_min_p[slot] = math.log(options.min_p) if options.min_p > 0 else -np.inf
        self._penalty[slot] = penalty
        if penalty != 1.0:
            self._present[slot] = False
            self._present[slot, list(prompt)] = True
        self._has_bias[slot] = bool(options.logit_bias)
        self._bias[slot] = 0.0
        for token, bias in options.logit_bias.items():
            self._bias[slot, token] = bias

    def release(self, slot: int) -> None:
        """Give a slot the options of greedy decoding, which cost least."""
        self._temperature[slot], self._penalty[slot], self._has_bias[slot] = 0.0, 1.0, False
        self._bias[slot] = 0.0

    def next_tokens(self, logits: Any, slots: slice, suppressed: np.ndarray | None) -> np.ndarray:
        """Return the next token i64[n] of the n slots of a slice, and count it.

        Args:
            logits: Logits f32[n, vocab_size].
            suppressed: Mask bool[vocab_size] or bool[n, vocab_size] of tokens with probability 0.
        """
        is_sampled = self._temperature[slots] > 0
        is_filtered = is_sampled & (
            (self._top_k[slots] > 0) | (self._top_p[slots] < 1) | (self._log_min_p[slots] > -np.inf)
        )
        has_penalty = (self._penalty[slots] != 1.0).any()
        key = (self._seeds[slots], self._counts[slots], self._temperature[slots])
        filters = (self._top_k[slots], self._top_p[slots], self._log_min_p[slots])
        tokens = self._program(
            logits,
            suppressed,
            (self._present[slots], self._penalty[slots]) if has_penalty else None,
            self._bias[slots] if self._has_bias[slots].any() else None,
            key if is_sampled.any() else None,
            filters if is_filtered.any() else None,
        )
        result = np.array(tokens)
        self._counts[slots] += 1
        if has_penalty:
            self._present[np.arange(len(self._counts))[slots], result] = True
        return result


@functools.lru_cache
def token_program(target: str | None) -> Callable[..., Any]:
    """Return the compiled function from logits to tokens i64[slots]; it has a program for each combination of options.

    An option that one slot has is computed for all of them; where a slot does not have it, its result is the logits unchanged,
    so that its token does not depend on the other slots.
    """

    def next_tokens(logits: Any, suppressed: Any, repetition: Any, bias: Any, sampling: Any, filters: Any) -> Any:
        x = rlx.astype(logits, rlx.f32)
        if repetition is not None:
            present, penalty = repetition[0], repetition[1][:, None]
            x = rlx.where(present, rlx.where(x < 0, x * penalty, x / penalty), x)
        x = x if bias is None else x + bias
        x = x if suppressed is None else rlx.where(suppressed, -np.inf, x)
        greedy = rlx.astype(rlx.argmax(x, axis=-1), rlx.i64)
        if sampling is None:
            return greedy
        seeds, counts, temperature = sampling
        is_greedy = temperature == 0
        scaled = x / rlx.where(is_greedy, 1.0, temperature)[:, None]
        scaled = scaled if filters is None else filter_rows(scaled, *filters)
        return rlx.where(is_greedy, greedy, rlx.vmap(_draw)(seeds, counts, scaled))

    return rlx.jit(next_tokens, target=target)


@functools.lru_cache
def logprob_program(target: str | None) -> Callable[..., Any]:
    """Return the compiled function from logits f32[n, vocab_size], tokens i64[n] and a count to logarithms of probabilities.

    Returns:
        Those of the tokens, f32[n]; and those of the most probable tokens in descending order, f32[n, count], with the tokens.
    """

    def logprobs(logits: Any, tokens: Any, count: int) -> Any:
        x = rlx.log_softmax(rlx.astype(logits, rlx.f32), axis=-1)
        return rlx.take_along_axis(x, tokens[:, None], axis=-1)[:, 0], *rlx.top_k(x, count)

    return rlx.jit(logprobs, target=target)


def _draw(seed: Any, count: Any, logits: Any) -> Any:
    """Return the token that `generate` samples as number `count` of a batch of one text."""
    key = rlx.random.fold_in(rlx.random.key(seed), count)
    return rlx.random.categorical(key, logits[None])[0]


def filter_rows(x: Any, top_k: Any, top_p: Any, log_min_p: Any) -> Any:
    """Return logits f32[rows, n] as by `rlx.random.filter_logits`, with options of each row.

    Args:
        top_k: i64[rows]; 0 keeps all.
        top_p: f32[rows]; 1 keeps all.
        log_min_p: Logarithms f32[rows] of `min_p`; -inf keeps all.
    """
    n = x.shape[-1]
    order = rlx.argsort(x, axis=-1, descending=True)
    descending = rlx.take_along_axis(x, order, axis=-1)
    last = rlx.where(rlx.logical_or(top_k == 0, top_k > n), n, top_k) - 1
    least = rlx.take_along_axis(descending, last[:, None], axis=-1)
    x = rlx.where(x >= least, x, -np.inf)
    descending = rlx.where(descending >= least, descending, -np.inf)
    probabilities = rlx.softmax(descending, axis=-1)
    before = rlx.cumulative_sum(probabilities, axis=-1) - probabilities
    count = rlx.sum(rlx.astype(before < top_p[:, None], rlx.i64), axis=-1, keepdims=True)
    count = rlx.where(top_p[:, None] >= 1, n, rlx.maximum(count, 1))
    ranks = rlx.scatter(rlx.zeros_like(order), order, rlx.zeros_like(order) + rlx.arange(n), axis=1, batch_dims=1)
    x = rlx.where(ranks < count, x, -np.inf)
    return rlx.where(x >= rlx.max(x, axis=-1, keepdims=True) + log_min_p[:, None], x, -np.inf)
