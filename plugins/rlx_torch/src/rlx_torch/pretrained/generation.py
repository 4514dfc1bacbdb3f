"""Continuing texts: one program reads the prompts into a cache of keys and values, another adds a token to it where it lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ConfigError, Fact, ShapeError

if TYPE_CHECKING:
    from rlx_torch.pretrained.loading import PretrainedModel

__all__ = ["generate"]


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

    Prompts of different lengths go together, the shorter ones with padding in front that nothing sees. The room for keys and
    values is a power of two, so that prompts of like lengths share programs.

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
    architecture = model.architecture
    if architecture.step is None or architecture.cache is None:
        raise ConfigError(f"generate: {model.name} is no decoder", hint="models such as gpt2, llama and qwen3 are")
    if key is None and (temperature, top_k, top_p, min_p) != (1.0, 0, 1.0, 0.0):
        raise ConfigError(
            "generate: the likeliest tokens are taken, and nothing is drawn", hint="key=rlx.random.key(0)"
        )
    lengths = [len(each) for each in prompts]
    if not lengths or not all(lengths):
        raise ShapeError("generate: each prompt has a token at least", Fact("lengths", lengths))
    width, total = max(lengths), max(lengths) + max_new_tokens
    most = model.config.get("max_position_embeddings", model.config.get("n_positions", total))
    if total > most:
        raise ShapeError(f"generate: {total} tokens are more than the {most} positions of {model.name}")
    ends = _ends(model, stop)

    room = max(16, 1 << (total - 1).bit_length())
    features, layers = architecture.cache
    cache = [tuple(np.zeros((len(lengths), room, features), np.float32) for _ in range(2)) for _ in range(layers)]
    ids = np.zeros((len(lengths), width), np.int64)
    real = np.ones((len(lengths), room), np.bool_)
    for row, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        ids[row, width - length :], real[row, : width - length] = prompt, False
    positions = np.maximum(np.cumsum(real, axis=1) - 1, 0).astype(np.int64)

    def choose(logits: Any, drawn: Any) -> Any:
        if drawn is None:
            return rlx.astype(rlx.argmax(logits, axis=-1), rlx.i64)
        found = rlx.random.sample_logits(drawn, logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
        return rlx.astype(found, rlx.i64)

    def advance(parameters: Any, ids: Any, real: Any, positions: Any, cache: Any, at: Any, drawn: Any) -> Any:
        assert architecture.step is not None, "looked at above"
        logits, cache = architecture.step(parameters, ids, real, positions, cache, at)
        return choose(logits, drawn), cache

    # `parameters` are bound once, and the cache is written where it lies.
    run = rlx.jit(advance, donate=("cache",), target=target)
    texts: list[list[int]] = [[] for _ in lengths]
    open_rows = set(range(len(lengths)))
    for number in range(max_new_tokens):
        at = 0 if number == 0 else width + number - 1
        steps = ids.shape[1]
        drawn = None if key is None else rlx.random.fold_in(key, number)
        tokens, cache = run(model.parameters, ids, real, positions[:, at : at + steps], cache, np.int64(at), drawn)
        tokens = np.asarray(tokens)
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


def _ends(model: PretrainedModel, stop: int | Sequence[int] | None) -> set[int]:
    """The tokens that end a text."""
    said = model.config.get("eos_token_id") if stop is None else stop
    return set() if said is None else {said} if isinstance(said, int) else set(said)
