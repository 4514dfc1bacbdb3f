"""Speculative decoding: several tokens are drafted, and the model verifies them in one step; its distribution is unchanged.

Source:
    Leviathan, Kalman, Matias 2023, "Fast Inference from Transformers via Speculative Decoding", arXiv:2211.17192, algorithm 1
    and theorem 3.5; Chen et al. 2023, "Accelerating Large Language Model Decoding with Speculative Sampling", arXiv:2302.01318.
    Drafts from the prompt: Saxena 2023, "Prompt Lookup Decoding", github.com/apoorvumang/prompt-lookup-decoding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_models.generation.batch import Batch, Texts
from rlx_models.generation.programs import SELECTED, decoding_of
from rlx_models.generation.sampling import Sampling, sampler, with_penalty
from rlx_models.model import PretrainedModel

MAX_NGRAM: Final = 3
"""Tokens at the end of a text that are searched in it."""


class Drafter(Protocol):
    """A source of tokens that the model verifies."""

    def propose(self, sequences: Sequence[Sequence[int]], positions: np.ndarray, count: int, index: int) -> Draft:
        """Return `count` tokens for each text.

        Args:
            sequences: The prompts with their new tokens.
            positions: The index i64[batch] of each last token in the cache.
            index: The number of the first random draw.
        """


Draft = tuple[np.ndarray, tuple[Any, ...] | None]
"""Tokens i64[batch, count], and the logits f32[batch, vocab_size] that each was sampled from; `None`: they are not sampled."""


class PromptDrafter:
    """Drafts what followed the last occurrence of the last tokens in the text: for texts that repeat their prompt."""

    def propose(self, sequences: Sequence[Sequence[int]], positions: np.ndarray, count: int, index: int) -> Draft:
        del positions, index
        return np.array([_repeated(sequence, count) for sequence in sequences]), None


def _repeated(sequence: Sequence[int], count: int) -> list[int]:
    """Return `count` tokens: those after the last earlier occurrence of the longest end, followed by the last token."""
    tokens, length = list(sequence), len(sequence)
    for size in range(min(MAX_NGRAM, length - 1), 0, -1):
        for start in range(length - size - 1, -1, -1):
            if tokens[start : start + size] == tokens[-size:]:
                following = tokens[start + size : start + size + count]
                return following + tokens[-1:] * (count - len(following))
    return tokens[-1:] * count


class ModelDrafter:
    """Drafts tokens of a smaller model, greedily or by sampling with the options of the text.

    Args:
        batch: The same prompts for the smaller model.
        suppressed: Tokens with probability 0, bool[vocab_size], or `None`.
    """

    def __init__(self, batch: Batch, sampling: Sampling, suppressed: np.ndarray | None) -> None:
        self._batch, self._sampling, self._suppressed = batch, sampling, suppressed
        self._model = CachedModel(batch)
        self._model.logits(batch.input_ids, np.zeros(len(batch.prompts), np.int64), 1)

    def propose(self, sequences: Sequence[Sequence[int]], positions: np.ndarray, count: int, index: int) -> Draft:
        # The token before the last one may not be in the cache: after a step all of whose tokens were accepted.
        input_ids, start = np.array([sequence[-2:] for sequence in sequences]), positions - 1
        tokens, logits = [], []
        for number in range(count):
            last = self._model.logits(input_ids, start, 1)[:, 0]
            sample = sampler(self._batch.target)
            drafted = sample(last, self._suppressed, None, 1.0, np.array(index + number), *self._sampling.arguments)
            tokens.append(np.asarray(drafted))
            logits.append(last)
            input_ids, start = tokens[-1][:, None], positions + number + 1
        return np.stack(tokens, axis=1), tuple(logits)


class CachedModel:
    """A decoder with its cache, whose texts have separate positions. Going back in a text is calling it with earlier positions.

    Raises:
        ConfigError: The model has a recurrent state or an encoder.
    """

    def __init__(self, batch: Batch) -> None:
        if batch.decoding.step_selected is None:
            kind = "a recurrent state" if batch.decoding.encode is None else "an encoder"
            raise ConfigError(
                f"generate: drafts are for decoders with a cache of keys and values, and {batch.model.name} has {kind}",
                hint="generate without draft_model= and draft=",
            )
        self._batch = batch
        self._step = batch.program(SELECTED)
        self._cache = batch.zero_cache(self._step)

    def logits(self, input_ids: np.ndarray, positions: np.ndarray, count: int) -> Any:
        """Add tokens i64[batch, length] from positions i64[batch] of the cache on, and return the logits of the last ones.

        Returns:
            f32[batch, count, vocab_size].
        """
        rows, length = input_ids.shape
        selected = np.broadcast_to(np.arange(length - count, length), (rows, count))
        result, self._cache = self._step(input_ids, self._batch.left_padding, self._cache, positions, selected)
        return result


def speculate(batch: Batch, texts: Texts, sampling: Sampling, drafter: Drafter, num_draft_tokens: int) -> None:
    """Generate the texts of a batch; a step adds 1 to `num_draft_tokens` + 1 tokens to each."""
    if not batch.max_new_tokens:
        return
    model, rows = CachedModel(batch), range(len(batch.prompts))
    penalty = texts.options.repetition_penalty
    present = None if penalty == 1.0 else batch.present_tokens()

    def append(row: int, token: int) -> None:
        if present is not None:
            present[row, token] = True
        if not texts.append(row, token) and len(texts.tokens[row]) == batch.max_new_tokens:
            texts.unfinished.discard(row)

    logits = model.logits(batch.input_ids, np.zeros(len(rows), np.int64), 1)[:, 0]
    first = sampler(batch.target)(logits, texts.suppressed(), present, penalty, np.array(0), *sampling.arguments)
    for row, token in enumerate(np.asarray(first).tolist()):
        append(row, token)
    index = 1
    while texts.unfinished:
        longest = max(len(texts.tokens[row]) for row in texts.unfinished)
        count = min(num_draft_tokens, batch.max_new_tokens - longest)
        # Texts that have ended are computed, too: at a position with space for the draft.
        new = [len(texts.tokens[row]) if row in texts.unfinished else 1 for row in rows]
        positions = batch.width + np.array(new) - 1
        sequences = [[*batch.prompts[row], *texts.tokens[row]] for row in rows]
        drafted, draft_logits = drafter.propose(sequences, positions, count, index)
        last = np.array([sequence[-1] for sequence in sequences])[:, None]
        logits = model.logits(np.concatenate([last, drafted], axis=1), positions, count + 1)
        repetition = None if present is None else _present_at(present, drafted)
        accepted, following = acceptance(batch.target)(
            logits, drafted, draft_logits, texts.suppressed(), repetition, penalty, np.array(index + count),
            *sampling.arguments,
        )  # fmt: skip
        index += count + 1
        for row, number, token in zip(rows, np.asarray(accepted).tolist(), np.asarray(following).tolist(), strict=True):
            for each in (*drafted[row, :number].tolist(), token):
                if row in texts.unfinished:
                    append(row, each)


def _present_at(present: np.ndarray, drafted: np.ndarray) -> np.ndarray:
    """Return bool[batch, count + 1, vocab_size]: the tokens of the text before each drafted one, and after the last."""
    result = np.repeat(present[:, None], drafted.shape[1] + 1, axis=1)
    for number, tokens in enumerate(drafted.T):
        result[np.arange(len(tokens)), number + 1 :, tokens] = True
    return result


@functools.lru_cache
def acceptance(target: str | None) -> Callable[..., Any]:
    """Return the compiled function from logits to the number of accepted tokens i64[batch], and the token i64[batch] after them.

    Its arguments are logits f32[batch, count + 1, vocab_size]; drafted tokens i64[batch, count]; the logits that they were
    sampled from, or `None`; and those of `sampler`, with the tokens of texts as bool[batch, count + 1, vocab_size].

    A token d with the probability q(d) in the draft is accepted with the probability min(1, p(d) / q(d)); instead of the first
    one that is not, a token of the distribution max(0, p - q) is sampled, up to a factor. Then tokens have the distribution p.
    """

    def accept(
        logits: Any,
        drafted: Any,
        draft_logits: Any,
        suppressed: Any,
        present: Any,
        penalty: float,
        index: Any,
        key: Any,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
    ) -> Any:
        x = with_penalty(logits, suppressed, present, penalty)
        if key is None or temperature == 0:
            best = rlx.astype(rlx.argmax(x, axis=-1), rlx.i64)
            count = _leading(rlx.equal(best[:, :-1], drafted))
            return count, rlx.take_along_axis(best, count[:, None], axis=1)[:, 0]

        def probabilities(y: Any) -> Any:
            return rlx.softmax(
                rlx.random.filter_logits(y / temperature, top_k=top_k, top_p=top_p, min_p=min_p), axis=-1
            )

        p = probabilities(x)
        if draft_logits is None:
            q = rlx.astype(rlx.equal(drafted[:, :, None], rlx.arange(x.shape[-1])), rlx.f32)
        else:
            q = probabilities(with_penalty(rlx.stack(draft_logits, axis=1), suppressed, None, 1.0))
        p_drafted, q_drafted = (rlx.take_along_axis(y, drafted[:, :, None], axis=-1)[:, :, 0] for y in (p[:, :-1], q))
        uniform_key, token_key = rlx.random.split(rlx.random.fold_in(key, index))
        uniform = rlx.random.uniform(uniform_key, drafted.shape)
        count = _leading(uniform * q_drafted < p_drafted)
        residual = rlx.concat([rlx.maximum(p[:, :-1] - q, 0.0), p[:, -1:]], axis=1)
        chosen, at_count = (rlx.take_along_axis(y, count[:, None, None], axis=1)[:, 0] for y in (residual, p))
        # Probabilities that differ by their rounding only may leave nothing.
        chosen = rlx.where(rlx.max(chosen, axis=-1, keepdims=True) > 0, chosen, at_count)
        return count, rlx.random.categorical(token_key, rlx.log(chosen))

    return rlx.jit(accept, target=target)


def _leading(is_accepted: Any) -> Any:
    """Return the number i64[batch] of true values before the first false one, of bool[batch, count]."""
    is_rejected = rlx.pad(rlx.astype(rlx.logical_not(is_accepted), rlx.i64), ((0, 0), (0, 1)), constant_values=1)
    return rlx.astype(rlx.argmax(is_rejected, axis=-1), rlx.i64)


def check_drafts(
    model: PretrainedModel, draft_model: PretrainedModel | None, draft: str | None, num_draft_tokens: int
) -> bool:
    """Return whether tokens are drafted.

    Raises:
        ConfigError: There are two sources of drafts or an unknown one, `num_draft_tokens` is below 1, or vocabularies differ.
    """
    if draft not in (None, "prompt") or (draft is not None and draft_model is not None):
        raise ConfigError(
            f"generate: draft is {draft!r:.40}", hint='draft_model=model, or draft="prompt" without draft_model='
        )
    if num_draft_tokens < 1:
        raise ConfigError(f"generate: num_draft_tokens must be 1 or more, not {num_draft_tokens}")
    if draft_model is None:
        return draft is not None
    decoding_of(draft_model)
    sizes = [each.config["vocab_size"] for each in (model, draft_model)]
    if sizes[0] != sizes[1]:
        raise ConfigError(
            f"generate: the vocabularies of {model.name} and its draft model differ ({sizes[0]} != {sizes[1]} tokens)",
            hint="a draft model has the tokenizer of the model",
        )
    return True
