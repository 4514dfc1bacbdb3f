"""Beam search: the most probable texts of several, by the sum of the logarithms of their tokens' probabilities.

Source:
    Graves 2012, "Sequence Transduction with Recurrent Neural Networks", arXiv:1211.3711, section 2.5. Length penalty, ends and
    ties as `_beam_search` of Transformers 5.24 (`generation/utils.py`): texts that end among the `num_beams` best candidates
    are finished, and divided by length ** length_penalty.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np
from attrs import define, field, frozen

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_models.generation.batch import Batch, Texts
from rlx_models.generation.programs import CACHE_ROWS, compiled_program
from rlx_models.generation.sampling import with_penalty

IMPOSSIBLE: Final = -1e9
"""The score of a beam that does not exist: in the first step all beams of a prompt are the prompt."""


@frozen(kw_only=True)
class BeamOptions:
    """Options of beam search.

    Attributes:
        num_beams: The number of texts that are continued for each prompt; 1 is no beam search.
        length_penalty: The exponent of the length that scores are divided by: above 0 favours long texts.
        early_stopping: When a prompt is done: true if `num_beams` texts have ended; false if they also are better than the best
            continued one at its present length; `"never"` if no length up to the maximum could make it better.
    """

    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False

    def check(self, **others: Any) -> None:
        """Check the options, and that arguments that are not for beam search are `None`.

        Raises:
            ConfigError: They are not.
        """
        if self.num_beams < 1:
            raise ConfigError(f"generate: num_beams must be 1 or more, not {self.num_beams}")
        if self.early_stopping not in (True, False, "never"):
            raise ConfigError(f"generate: early_stopping is {self.early_stopping!r:.40}", hint='True, False or "never"')
        if self.num_beams == 1 and (self.length_penalty, self.early_stopping) != (1.0, False):
            raise ConfigError(
                "generate: length_penalty and early_stopping have no effect on one beam", hint="num_beams=4"
            )
        names = [name for name, value in others.items() if value is not None]
        if self.num_beams > 1 and names:
            raise ConfigError(f"generate: {names[0]} is not for beam search", hint=f"num_beams=1, or no {names[0]}=")


@define
class Beams:
    """The texts of one prompt.

    Attributes:
        running: The texts that are continued, in descending order of their scores.
        finished: The best texts that have ended, with their scores divided by the length penalty, in descending order.
        is_open: Whether a running text may still be better than the finished ones.
    """

    options: BeamOptions
    running: list[list[int]]
    finished: list[tuple[float, list[int]]] = field(factory=list)
    is_open: bool = True

    def finish(self, score: float, text: list[int]) -> None:
        """Add a text that has ended, if it is one of the best."""
        divided = float(np.float32(score) / np.float32(len(text) ** self.options.length_penalty))
        self.finished = sorted([*self.finished, (divided, text)], key=lambda each: -each[0])[: self.options.num_beams]

    def close(self, best_running: float, length: int, max_length: int) -> None:
        """Set `is_open` by the score of the best running text, of `length` tokens."""
        if len(self.finished) < self.options.num_beams:
            return
        is_limit = self.options.early_stopping == "never" and self.options.length_penalty > 0
        possible = best_running / (max_length if is_limit else length) ** self.options.length_penalty
        is_better = possible > self.finished[-1][0]
        self.is_open = self.is_open and is_better and self.options.early_stopping is not True


def search_beams(batch: Batch, texts: Texts, options: BeamOptions) -> None:
    """Generate the most probable text of each prompt that the search finds.

    A prompt is processed once. After each step the cache has the rows of the selected beams, by one program.
    """
    step, width = batch.step, options.num_beams
    ends = texts.options.eos_token_ids
    candidates = max(2, 1 + len(ends)) * width
    prompts = [Beams(options, [[] for _ in range(width)]) for _ in batch.prompts]
    penalty = texts.options.repetition_penalty
    present = None if penalty == 1.0 else np.repeat(batch.present_tokens(), width, axis=0)
    first_rows = np.repeat(np.arange(len(prompts)), width)
    scores = np.full((len(prompts), width), IMPOSSIBLE, np.float32)
    scores[:, 0] = 0.0
    select_rows = compiled_program(batch.model, CACHE_ROWS[batch.cache_dtype], batch.target)
    best_candidates = beam_candidates(batch.target)
    left_padding, encoded = batch.left_padding, batch.encoded
    input_ids, cache = batch.input_ids, batch.zero_cache(step)
    for index in range(batch.max_new_tokens):
        position = np.array(0 if index == 0 else batch.width + index - 1)
        logits, cache = step(input_ids, left_padding, cache, position, *encoded)
        if index == 0:
            logits, left_padding = np.asarray(logits)[first_rows], left_padding[first_rows]
            if encoded:
                encoded = (compiled_program(batch.model, "encoded rows", batch.target)(*encoded, first_rows),)
        suppressed = texts.options.suppressed if index else texts.options.begin_suppressed
        best, indices = map(np.asarray, best_candidates(logits, suppressed, present, penalty, scores, candidates))
        beams, tokens = np.divmod(indices, batch.vocab_size)
        is_last = index + 1 == batch.max_new_tokens
        rows, input_ids = np.zeros((2, len(prompts), width), np.int64)
        for number, prompt in enumerate(prompts):
            new = [
                [*prompt.running[beam], int(token)] for beam, token in zip(beams[number], tokens[number], strict=True)
            ]
            is_end = np.array([is_last or text[-1] in ends or texts.is_stopped(text) for text in new])
            # Candidates that have ended are continued only if there are no others.
            remaining = best[number] + is_end * np.float32(IMPOSSIBLE)
            order = np.argsort(-remaining, kind="stable")[:width]
            for candidate in np.flatnonzero(is_end[:width] & prompt.is_open):
                prompt.finish(best[number, candidate], new[candidate])
            prompt.running, scores[number] = [new[each] for each in order], remaining[order]
            rows[number], input_ids[number] = beams[number, order], tokens[number, order]
            prompt.close(float(scores[number, 0]), index + 1, batch.max_new_tokens)
        if is_last or not any(prompt.is_open for prompt in prompts):
            break
        # The first step has one row for each prompt.
        rows += np.arange(len(prompts))[:, None] * width
        flat, input_ids = rows.reshape(-1), input_ids.reshape(-1, 1)
        cache = select_rows(cache, flat if index else first_rows)
        if present is not None:
            present = present[flat]
            present[np.arange(len(present)), input_ids[:, 0]] = True
    for row, prompt in enumerate(prompts):
        texts.tokens[row] = prompt.finished[0][1] if prompt.finished else []


@functools.lru_cache
def beam_candidates(target: str | None) -> Callable[..., Any]:
    """Return the compiled function from logits to the best continuations of all beams of each prompt.

    Its arguments are logits f32[prompts · beams, vocab_size]; masks and a penalty as for `sampler`; the scores
    f32[prompts, beams] of the beams; and the number of candidates.

    Returns:
        The scores f32[prompts, candidates] in descending order, and the indices beam · vocab_size + token, i64 of this shape.
    """

    def best(logits: Any, suppressed: Any, present: Any, penalty: float, scores: Any, candidates: int) -> Any:
        x = with_penalty(rlx.log_softmax(rlx.astype(logits, rlx.f32)), suppressed, present, penalty)
        sums = rlx.reshape(x, (*scores.shape, x.shape[-1])) + scores[:, :, None]
        return rlx.top_k(rlx.reshape(sums, (scores.shape[0], -1)), candidates)

    return rlx.jit(best, target=target)
