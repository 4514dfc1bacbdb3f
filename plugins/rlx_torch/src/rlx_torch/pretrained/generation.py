"""Continuing texts: a program reads the prompts into a cache of keys and values, then adds token by token to it where it lies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ConfigError, Fact, ShapeError

if TYPE_CHECKING:
    from rlx_core.runtime.compiled_function import CompiledFunction
    from rlx_torch.pretrained.loading import PretrainedModel
    from rlx_torch.pretrained.parts import Decoding

__all__ = ["generate"]

WIDTHS: Final = 16
"""Prompts are padded to a multiple of this."""


def generate(
    model: PretrainedModel,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    key: Any = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    stop: int | Sequence[int] | None = None,
    target: str | None = None,
    on_tokens: Callable[[np.ndarray], None] | None = None,
) -> list[list[int]]:
    """The tokens behind some prompts: the likeliest, or drawn ones where there is a key.

    Prompts of different lengths go together, the shorter ones with padding in front that nothing sees. The program is made once
    for a model and a target, with the parameters bound; it is specialised for the prompts, padded to a multiple of 16, and for
    single tokens, with room for keys and values that is a power of two: few sizes, whatever the texts.

    Args:
        model: A decoder from `from_pretrained`.
        prompts: The tokens of each; at least one each.
        max_new_tokens: The most tokens behind each.
        key: From `rlx.random.key`; without it the likeliest token is taken.
        temperature, top_k, top_p, min_p: As for `rlx.random.sample_logits`; for drawn ones only.
        stop: Tokens behind which a text ends; by default what the configuration calls `eos_token_id`.
        target: What runs it.
        on_tokens: Called with the tokens i64[prompts] of each step when they are there, those of texts that ended too.

    Returns:
        The new tokens of each prompt, with that which ended it.

    Raises:
        ConfigError: The model continues no texts, or there is nothing to draw with.
        ShapeError: A prompt is empty, or there are none, or the texts would be longer than the model's positions.
    """
    decoding = model.architecture.decoding
    if decoding is None:
        raise ConfigError(f"generate: {model.name} is no decoder", hint="models such as gpt2, llama and qwen3 are")
    drawing = (temperature, top_k, top_p, min_p)
    if key is None and drawing != (1.0, 0, 1.0, 0.0):
        raise ConfigError(
            "generate: the likeliest tokens are taken, and nothing is drawn", hint="key=rlx.random.key(0)"
        )
    lengths = [len(each) for each in prompts]
    if not lengths or not all(lengths):
        raise ShapeError("generate: each prompt has a token at least", Fact("lengths", lengths))
    total = max(lengths) + max_new_tokens
    if total > decoding.positions:
        raise ShapeError(f"generate: {total} tokens are more than the {decoding.positions} positions of {model.name}")
    step, choose = _step(model, decoding, target), _chooser(target)

    width = -(-max(lengths) // WIDTHS) * WIDTHS
    ids, padding = np.zeros((len(lengths), width), np.int64), width - np.array(lengths)
    for row, prompt in enumerate(prompts):
        ids[row, padding[row] :] = prompt
    # On a device the cache stays there, and with it the logits.
    empty = np.zeros((len(lengths), 1 << (width + max_new_tokens - 1).bit_length(), decoding.features), np.float32)
    place = target or step.report.target
    cache = [tuple(rlx.device_put(empty.copy(), place) for _ in range(2)) for _ in range(decoding.layers)]

    ends = _ends(model, stop)
    texts: list[list[int]] = [[] for _ in lengths]
    open_rows = set(range(len(lengths)))
    for number in range(max_new_tokens):
        logits, cache = step(ids, padding, cache, np.array(0 if number == 0 else width + number - 1))
        tokens = np.asarray(choose(logits, key, np.array(number), *drawing))
        for row in sorted(open_rows):
            texts[row].append(int(tokens[row]))
            if texts[row][-1] in ends:
                open_rows.discard(row)
        if on_tokens is not None:
            on_tokens(tokens)
        if not open_rows:
            break
        ids = tokens[:, None]
    return texts


def _step(model: PretrainedModel, decoding: Decoding, target: str | None) -> CompiledFunction[..., Any]:
    """The step of a model, made once a target: its parameters are bound, and the cache is written where it lies."""
    if target not in model.steps:
        one = rlx.spec(f"f32[batch, room, {decoding.features}]")
        ids, padding, at = (rlx.spec(each) for each in ("i64[batch, steps]", "i64[batch]", "i64[]"))
        cache = [(one, one)] * decoding.layers
        model.steps[target] = rlx.compile(
            decoding.step, model.parameters, ids, padding, cache, at, donate="cache", target=target
        )
    return model.steps[target]


@functools.lru_cache
def _chooser(target: str | None) -> Callable[..., Any]:
    """From logits to tokens, made once for each way of drawing them."""

    def choose(logits: Any, key: Any, number: Any, temperature: float, top_k: int, top_p: float, min_p: float) -> Any:
        if key is None:
            return rlx.astype(rlx.argmax(logits, axis=-1), rlx.i64)
        drawn = rlx.random.fold_in(key, number)
        return rlx.random.sample_logits(drawn, logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)

    return rlx.jit(choose, target=target)


def _ends(model: PretrainedModel, stop: int | Sequence[int] | None) -> set[int]:
    """The tokens that end a text."""
    said = model.config.get("eos_token_id") if stop is None else stop
    return set() if said is None else {said} if isinstance(said, int) else set(said)
