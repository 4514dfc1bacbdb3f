"""`RequestOptions`: how a request of the engine samples its tokens, and what ends it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from attrs import field, frozen

from rlx_core.errors import ConfigError, Fact
from rlx_models.generation.grammar import Grammar

MAX_TOP_LOGPROBS = 20
"""Most probable tokens that are reported for each token."""
MAX_STOP_LENGTH = 1024
"""Characters of a stop string, as many of which are withheld from the text while they may begin it."""


@frozen(kw_only=True)
class RequestOptions:
    """How a request samples its tokens, and what ends it.

    Attributes:
        max_new_tokens: The maximum number of generated tokens; `None` is all that fit into the slot.
        temperature: The divisor of logits; at 0 each token is the most probable one (greedy decoding).
        top_k, top_p, min_p: As for `rlx.random.filter_logits`.
        seed: The seed of `rlx.random.key`; a random one by default. Tokens depend on the seed, the prompt and the options only.
        repetition_penalty: As for `generate`.
        logit_bias: Numbers that are added to the logits of tokens.
        eos_token_id: Tokens that end the text; by default those of the checkpoint. `()` for none.
        stop_token_ids: Further tokens that end the text.
        stop: Texts that end it; the text ends before the first of them.
        grammar: The texts that may be generated (`rlx_models.json_grammar`).
        top_logprobs: The number of most probable tokens that are reported with each token and the logarithms of their
            probabilities, up to 20; `None` reports nothing. Probabilities are those of the model, before penalties, biases,
            temperature and filters.
    """

    max_new_tokens: int | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] = field(factory=dict)
    eos_token_id: int | Sequence[int] | None = None
    stop_token_ids: Sequence[int] = ()
    stop: Sequence[str] = ()
    grammar: Grammar | None = None
    top_logprobs: int | None = None

    def check(self, vocab_size: int) -> None:
        """Check that numbers are in their ranges, and tokens in the vocabulary.

        Raises:
            ConfigError: One is not; the fact `option` has its name.
        """
        _expect(
            "max_new_tokens", "1 or more", self.max_new_tokens, self.max_new_tokens is None or self.max_new_tokens >= 1
        )
        _expect("temperature", "0 or more and finite", self.temperature, 0 <= self.temperature < math.inf)
        _expect("top_k", "0 or more", self.top_k, self.top_k >= 0)
        _expect("top_p", "from 0 to 1", self.top_p, 0 <= self.top_p <= 1)
        _expect("min_p", "from 0 to 1", self.min_p, 0 <= self.min_p <= 1)
        _expect("seed", "an integer of 64 bits", self.seed, self.seed is None or -(1 << 63) <= self.seed < 1 << 64)
        penalty = self.repetition_penalty
        _expect("repetition_penalty", "above 0 and finite", penalty, penalty is None or 0 < penalty < math.inf)
        count = self.top_logprobs
        _expect("top_logprobs", f"from 0 to {MAX_TOP_LOGPROBS}", count, count is None or 0 <= count <= MAX_TOP_LOGPROBS)
        for token, bias in self.logit_bias.items():
            _expect("logit_bias", "finite", bias, math.isfinite(bias))
            _expect("logit_bias", f"of tokens below {vocab_size}", token, 0 <= token < vocab_size)
        for text in self.stop:
            _expect("stop", f"of 1 to {MAX_STOP_LENGTH} characters", text, 0 < len(text) <= MAX_STOP_LENGTH)


def _expect(name: str, expected: str, value: object, is_valid: bool) -> None:
    if not is_valid:
        raise ConfigError(f"serve: {name} must be {expected}, not {value!r:.80}", Fact("option", name))


def check_prompt(prompt: Sequence[int], vocab_size: int) -> None:
    """Check that a prompt has tokens, all of them of the vocabulary.

    Raises:
        ConfigError: It has none, or another.
    """
    if not len(prompt):
        raise ConfigError("serve: a prompt must have at least one token")
    for token in prompt:
        if not isinstance(token, int | np.integer) or not 0 <= token < vocab_size:
            raise ConfigError(f"serve: token {token!r:.40} of the prompt is outside of the vocabulary of {vocab_size}")
