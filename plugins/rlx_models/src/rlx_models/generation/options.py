"""Options of generation: arguments of `generate`, with defaults from `generation_config.json` or `config.json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import field, frozen

from rlx_core.errors import ConfigError, Fact, FormatError
from rlx_models.checkpoints import shown
from rlx_models.model import PretrainedModel

MAX_EXACT_INTEGER = 1 << 53
"""Integers up to this one are exact as float64."""


@frozen(kw_only=True)
class GenerationOptions:
    """Options of generation.

    Attributes:
        eos_token_ids: Tokens that end a text.
        suppressed: Tokens with probability 0, bool[vocab_size], or `None`.
        begin_suppressed: The same for the first generated token.
        repetition_penalty: The divisor of logits of tokens in the text; 1 has no effect.
    """

    eos_token_ids: frozenset[int]
    suppressed: np.ndarray | None = field(eq=False)
    begin_suppressed: np.ndarray | None = field(eq=False)
    repetition_penalty: float


def generation_options(
    model: PretrainedModel,
    *,
    eos_token_id: int | Sequence[int] | None,
    suppress_tokens: Sequence[int] | None,
    begin_suppress_tokens: Sequence[int] | None,
    repetition_penalty: float | None,
) -> GenerationOptions:
    """Return the options; those that are `None` have the values of the checkpoint.

    Raises:
        ConfigError: A token is outside of the vocabulary, or the penalty is not above 0.
        FormatError: The checkpoint has an option of another type.
    """
    eos = _checkpoint_tokens(model, "eos_token_id") if eos_token_id is None else eos_token_id
    suppressed = _token_mask(model, "suppress_tokens", suppress_tokens)
    first = _token_mask(model, "begin_suppress_tokens", begin_suppress_tokens)
    masks = [mask for mask in (first, suppressed) if mask is not None]
    return GenerationOptions(
        eos_token_ids=frozenset([eos] if isinstance(eos, int) else eos),
        suppressed=suppressed,
        begin_suppressed=np.logical_or.reduce(masks) if masks else None,
        repetition_penalty=_penalty(model, repetition_penalty),
    )


def _penalty(model: PretrainedModel, argument: float | None) -> float:
    value = model.generation_config.get("repetition_penalty") if argument is None else argument
    is_number = isinstance(value, int | float | np.number | None)
    if not is_number or (isinstance(value, int) and abs(value) > MAX_EXACT_INTEGER):
        raise ConfigError(f"generate: repetition_penalty must be a number, not {shown(value)}")
    penalty = 1.0 if value is None else float(value)
    if not penalty > 0:
        raise ConfigError(
            f"generate: repetition_penalty must be above 0, not {penalty:g}",
            hint="1 has no effect; 1.1 is a weak penalty",
        )
    return penalty


def _token_mask(model: PretrainedModel, name: str, argument: Sequence[int] | None) -> np.ndarray | None:
    """Return bool[vocab_size] that is true for the tokens of an argument, or of the checkpoint; `None` without tokens.

    Tokens of the checkpoint outside of its vocabulary are ignored.
    """
    vocab_size = model.config["vocab_size"]
    if argument is None:
        stated = _checkpoint_tokens(model, name)
        stated += _bad_tokens(model) if name == "suppress_tokens" else []
        tokens = [token for token in stated if _is_token(token, vocab_size)]
    else:
        tokens = list(argument)
    invalid = [token for token in tokens if not _is_token(token, vocab_size)]
    if invalid:
        message = f"generate: token {invalid[0]!r} is outside of the vocabulary of {vocab_size}"
        raise ConfigError(message, Fact(name, tokens))
    mask = np.isin(np.arange(vocab_size), tokens)
    return mask if mask.any() else None


def _bad_tokens(model: PretrainedModel) -> list[int]:
    """Return the bad words that are one token: Marian's padding, which the decoder begins with."""
    return [word[0] for word in _checkpoint_option(model, "bad_words_ids") or () if len(word) == 1]


def _is_token(token: Any, vocab_size: int) -> bool:
    return isinstance(token, int | np.integer) and 0 <= int(token) < vocab_size


def _checkpoint_tokens(model: PretrainedModel, name: str) -> list[int]:
    """Return the tokens of an option, which is a token or a list.

    Raises:
        FormatError: It is neither.
    """
    value = _checkpoint_option(model, name)
    tokens = [] if value is None else list(value) if isinstance(value, list) else [value]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in tokens):
        raise FormatError(f"generate: {name} of the checkpoint must be a token or a list of tokens, not {shown(value)}")
    return tokens


def _checkpoint_option(model: PretrainedModel, name: str) -> Any:
    """Return an option of `generation_config.json`, or of `config.json`, where older checkpoints have it."""
    return model.generation_config.get(name, model.config.get(name))
