"""Continuing texts: a program reads the prompts into a cache of keys and values, then adds token by token to it where it lies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ConfigError, Fact, FormatError, ShapeError
from rlx_models.checkpoints.config import shown

if TYPE_CHECKING:
    from rlx_core.runtime.compiled_function import CompiledFunction
    from rlx_models.loading import PretrainedModel

__all__ = ["generate"]

WIDTHS: Final = 16
"""Prompts are padded to a multiple of this."""


def generate(
    model: PretrainedModel,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    features: Any = None,
    key: Any = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float | None = None,
    stop: int | Sequence[int] | None = None,
    until: Callable[[Sequence[int]], bool] | None = None,
    suppress: Sequence[int] | None = None,
    suppress_first: Sequence[int] | None = None,
    target: str | None = None,
    on_tokens: Callable[[np.ndarray], None] | None = None,
) -> list[list[int]]:
    """The tokens behind some prompts: the likeliest, or drawn ones where there is a key.

    Prompts of different lengths go together, the shorter ones with padding in front that nothing sees. The program is made once
    for a model and a target, with the parameters bound; it is specialised for the prompts, padded to a multiple of 16, and for
    single tokens, with room for keys and values that is a power of two: few sizes, whatever the texts.

    Args:
        model: A decoder, or an encoder and decoder, from `from_pretrained`.
        prompts: The tokens of each; at least one each. An encoder-decoder (T5) reads them, and what it writes begins anew.
        max_new_tokens: The most tokens behind each.
        features: What the texts are of, for a model that hears (Whisper): f32[prompts, mels, frames].
        key: From `rlx.random.key`; without it the likeliest token is taken.
        temperature, top_k, top_p, min_p: As for `rlx.random.sample_logits`; for drawn ones only.
        repetition_penalty: By what the logits of tokens that stand in the prompt or behind it are divided, or multiplied where
            they are negative (Keskar et al. 2019, arXiv:1909.05858); by default what `generation_config.json` says, or 1.
        stop: Tokens behind which a text ends; by default what the configuration calls `eos_token_id`.
        until: Called with the new tokens of a text at each step; it ends where that is true:
            `lambda new: "\n\n" in tokenizer.decode(new)`.
        suppress: Tokens that are never written, and `suppress_first` those that do not come first; by default what
            `generation_config.json` calls `suppress_tokens` and `begin_suppress_tokens` (Whisper: what nobody says), and those
            of `bad_words_ids` that are one token.
        target: What runs it.
        on_tokens: Called with the tokens i64[prompts] of each step when they are there, those of texts that ended too.

    Returns:
        The new tokens of each prompt, with that which ended it.

    Raises:
        ConfigError: The model writes no texts, there is nothing to draw with, the penalty is not above 0, or a suppressed token
            is none.
        ShapeError: A prompt is empty, or there are none, or the texts would be longer than the model's positions.
    """
    decoding = model.architecture.decoding
    if decoding is None and model.reader == "transformers":
        raise ConfigError(
            f"generate: {model.name} was read by transformers, which gives whole texts and no cache",
            hint="append the likeliest token of the last logits of model(ids), and call the model again",
        )
    if decoding is None:
        raise ConfigError(
            f"generate: {model.name} has no decoder", hint="models such as gpt2, llama, qwen3 and t5 write texts"
        )
    drawing = (temperature, top_k, top_p, min_p)
    if key is None and drawing != (1.0, 0, 1.0, 0.0):
        raise ConfigError(
            "generate: the likeliest tokens are taken, and nothing is drawn", hint="key=rlx.random.key(0)"
        )
    lengths = [len(each) for each in prompts]
    if not lengths or not all(lengths):
        raise ShapeError("generate: each prompt has a token at least", Fact("lengths", lengths))
    is_heard = decoding.read is not None and decoding.start is None
    if is_heard is not (features is not None):
        said = (
            "writes what it hears, and there are no features" if is_heard else "hears nothing, and there are features"
        )
        raise ConfigError(f"generate: {model.name} {said}")
    context: tuple[Any, ...] = ()
    if decoding.read is not None:
        read = _program(model, "read", target)
        given = (features,) if is_heard else _read(prompts)
        context = read(*(rlx.device_put(each, target or read.report.target) for each in given))
    if decoding.start is not None:  # the prompts were read, and another text is written
        prompts, lengths = [[decoding.start]] * len(prompts), [1] * len(prompts)
    total = max(lengths) + max_new_tokens
    if decoding.positions is not None and total > decoding.positions:
        raise ShapeError(f"generate: {total} tokens are more than the {decoding.positions} positions of {model.name}")
    step, choose = _program(model, "step", target), _chooser(target)
    ids, padding = _continued(prompts)
    width = ids.shape[1]

    # On a device the cache stays there, and with it the logits, and what was read.
    room, place = 1 << (width + max_new_tokens - 1).bit_length(), target or step.report.target
    cache = [
        tuple(
            rlx.device_put(np.zeros((len(prompts), rows or room, features), np.float32), place)
            for rows, features in pair
        )
        for pair in decoding.cache
    ]

    ends = _ends(model, stop)
    first, later = _hidden(model, suppress, suppress_first)
    penalty = _penalty(model, repetition_penalty)
    seen = None if penalty == 1.0 else _seen(prompts, model.config["vocab_size"])
    texts: list[list[int]] = [[] for _ in lengths]
    open_rows = set(range(len(lengths)))
    for number in range(max_new_tokens):
        logits, cache = step(ids, padding, cache, np.array(0 if number == 0 else width + number - 1), *context)
        hidden = later if number else first
        tokens = np.asarray(choose(logits, hidden, seen, penalty, key, np.array(number), *drawing))
        if seen is not None:
            seen[np.arange(len(tokens)), tokens] = True
        for row in sorted(open_rows):
            texts[row].append(int(tokens[row]))
            if texts[row][-1] in ends or (until is not None and until(texts[row])):
                open_rows.discard(row)
        if on_tokens is not None:
            on_tokens(tokens)
        if not open_rows:
            break
        ids = tokens[:, None]
    return texts


def _continued(prompts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Prompts as ids i64[prompts, width] with padding in front, and how much of it i64[prompts] each has."""
    lengths = np.array([len(each) for each in prompts])
    width = _width(int(lengths.max()))
    ids = np.zeros((len(prompts), width), np.int64)
    for row, prompt in zip(ids, prompts, strict=True):
        row[width - len(prompt) :] = prompt
    return ids, width - lengths


def _read(prompts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Prompts as ids i64[prompts, width] with padding behind, and a mask that is 0 for it."""
    ids, mask = np.zeros((2, len(prompts), _width(max(map(len, prompts)))), np.int64)
    for row, real, prompt in zip(ids, mask, prompts, strict=True):
        row[: len(prompt)], real[: len(prompt)] = prompt, 1
    return ids, mask


def _width(most: int) -> int:
    return most if most == 1 else -(-most // WIDTHS) * WIDTHS


def _program(model: PretrainedModel, name: str, target: str | None) -> CompiledFunction[..., Any]:
    """A program of a model, made once a target: its parameters are bound, and a cache is written where it lies."""
    key = (name, target)
    if key not in model.programs:
        model.programs[key] = _PROGRAMS[name](model, target)
    return model.programs[key]


def _step(model: PretrainedModel, target: str | None) -> CompiledFunction[..., Any]:
    decoding = model.architecture.decoding
    assert decoding is not None, "looked at before"
    ids, padding, at = (rlx.spec(each) for each in ("i64[batch, steps]", "i64[batch]", "i64[]"))
    cache = [
        tuple(rlx.spec(f"f32[batch, {rows or 'room'}, {features}]") for rows, features in pair)
        for pair in decoding.cache
    ]
    context: tuple[Any, ...] = ()
    if decoding.read is not None:
        context = rlx.eval_shape(decoding.read, model.parameters, *model.encoder.inputs.values())
    return rlx.compile(
        decoding.step, model.parameters, ids, padding, cache, at, *context, donate="cache", target=target
    )


def _reading(model: PretrainedModel, target: str | None) -> CompiledFunction[..., Any]:
    decoding = model.architecture.decoding
    assert decoding is not None, "looked at before"
    assert decoding.read is not None, "looked at before"
    return rlx.compile(decoding.read, model.parameters, *model.encoder.inputs.values(), target=target)


_PROGRAMS: Final = {"step": _step, "read": _reading}


@functools.lru_cache
def _chooser(target: str | None) -> Callable[..., Any]:
    """From logits to tokens, made once for each way of drawing them."""

    def choose(
        logits: Any,
        hidden: Any,
        seen: Any,
        penalty: float,
        key: Any,
        number: Any,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
    ) -> Any:
        if seen is not None:
            logits = rlx.where(seen, rlx.where(logits < 0, logits * penalty, logits / penalty), logits)
        logits = logits if hidden is None else rlx.where(hidden, -np.inf, logits)
        if key is None:
            return rlx.astype(rlx.argmax(logits, axis=-1), rlx.i64)
        drawn = rlx.random.fold_in(key, number)
        return rlx.random.sample_logits(drawn, logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)

    return rlx.jit(choose, target=target)


def _ends(model: PretrainedModel, stop: int | Sequence[int] | None) -> set[int]:
    """The tokens that end a text."""
    said = _said_tokens(model, "eos_token_id") if stop is None else stop
    return {said} if isinstance(said, int) else set(said)


def _penalty(model: PretrainedModel, given: float | None) -> float:
    """By what logits of tokens that were there are divided: what is given, or what the checkpoint says."""
    said = model.generation.get("repetition_penalty") if given is None else given
    if not isinstance(said, int | float | np.number | None) or (isinstance(said, int) and abs(said) > 1 << 53):
        raise ConfigError(f"generate: a repetition_penalty is a number, not {shown(said)}")
    penalty = 1.0 if said is None else float(said)
    if not penalty > 0:
        raise ConfigError(
            f"generate: a repetition_penalty is above 0, not {penalty:g}", hint="1 changes nothing, 1.1 a little"
        )
    return penalty


def _seen(prompts: Sequence[Sequence[int]], words: int) -> np.ndarray:
    """Which tokens stand in each prompt, bool[prompts, words]."""
    return np.stack([np.isin(np.arange(words), list(prompt)) for prompt in prompts])


def _hidden(
    model: PretrainedModel, always: Sequence[int] | None, first: Sequence[int] | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Which tokens bool[words] may not come first, and which not later; `None` where all may."""
    later = _marked(model, "suppress", always, "suppress_tokens")
    begun = _marked(model, "suppress_first", first, "begin_suppress_tokens")
    return later if begun is None else begun if later is None else begun | later, later


def _marked(model: PretrainedModel, name: str, tokens: Sequence[int] | None, usual: str) -> np.ndarray | None:
    """The given tokens, or those that the checkpoint says, bool[words]."""
    words = model.config["vocab_size"]
    stated = [*_said_tokens(model, usual), *(_bad_tokens(model) if usual == "suppress_tokens" else ())]
    given = tokens if tokens is not None else [t for t in stated if _is_token(t, words)]
    wrong = [token for token in given if not _is_token(token, words)]
    if wrong:
        raise ConfigError(f"generate: {wrong[0]!r} is no token of a model with {words}", Fact(name, list(given)))
    found = np.isin(np.arange(words), list(given))
    return found if found.any() else None


def _bad_tokens(model: PretrainedModel) -> list[int]:
    """Return the bad words that are one token: Marian's padding, which the decoder begins with."""
    return [each[0] for each in _said(model, "bad_words_ids") or () if len(each) == 1]


def _is_token(token: Any, words: int) -> bool:
    return isinstance(token, int | np.integer) and 0 <= int(token) < words


def _said_tokens(model: PretrainedModel, name: str) -> list[int]:
    """The tokens that a checkpoint says, one or several.

    Raises:
        FormatError: It says something else.
    """
    said = _said(model, name)
    tokens = [] if said is None else said if isinstance(said, list) else [said]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in tokens):
        raise FormatError(f"generate: {name} of the checkpoint is a token or a list of tokens, not {shown(said)}")
    return tokens


def _said(model: PretrainedModel, name: str) -> Any:
    """What is said of writing texts, in the file for that or, as in older checkpoints, beside all else."""
    return model.generation.get(name, model.config.get(name))
