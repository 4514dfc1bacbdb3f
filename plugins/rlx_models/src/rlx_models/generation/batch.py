"""`Batch`: prompts of `generate` as inputs of the programs, and `Texts`: their continuations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, field, frozen

import rlx_core as rlx
from rlx_core.errors import ConfigError, Fact, ShapeError
from rlx_models.architectures import Decoding
from rlx_models.generation.grammar import ConstrainedText
from rlx_models.generation.options import GenerationOptions
from rlx_models.generation.programs import (
    ACTIVATIONS,
    STEPS,
    check_cache_dtype,
    compiled_program,
    decoding_of,
    padded_length,
    zero_cache,
)
from rlx_models.model import PretrainedModel

if TYPE_CHECKING:
    from rlx_core.runtime.compiled_function import CompiledFunction


@frozen(kw_only=True, eq=False)
class Batch:
    """Prompts as inputs of the programs.

    Attributes:
        prompts: The tokens that are continued: with an encoder, the one that begins texts.
        max_new_tokens: The maximum number of generated tokens.
        input_ids: `prompts` i64[batch, width] with padding on the left.
        left_padding: The lengths i64[batch] of the padding.
        encoded: With an encoder, the last argument of `Decoding.step`; otherwise none.
        cache_dtype: The dtype of keys and values in the cache.
        activations: The dtype of activations of products with weights of blocks.
        target: The target of the programs, as for `generate`.
    """

    model: PretrainedModel
    decoding: Decoding
    prompts: Sequence[Sequence[int]]
    max_new_tokens: int
    input_ids: np.ndarray
    left_padding: np.ndarray
    encoded: tuple[Any, ...]
    cache_dtype: str
    activations: str
    target: str | None

    @property
    def width(self) -> int:
        """The length of the padded prompts."""
        return int(self.input_ids.shape[1])

    @property
    def vocab_size(self) -> int:
        return int(self.model.config["vocab_size"])

    @property
    def step(self) -> CompiledFunction[..., Any]:
        """The program of `Decoding.step`."""
        return self.program(STEPS)

    def program(self, names: Mapping[str, str]) -> CompiledFunction[..., Any]:
        """Return the program with the dtypes of the batch; its name is `names[cache_dtype]`."""
        return compiled_program(self.model, names[self.cache_dtype] + ACTIVATIONS[self.activations], self.target)

    def zero_cache(self, program: CompiledFunction[..., Any]) -> list[tuple[Any, Any]]:
        """Return an empty cache for the prompts and their continuations, on the target of a program."""
        length, target = self.width + self.max_new_tokens, self.target or program.report.target
        return zero_cache(self.decoding, len(self.prompts), length, target, self.cache_dtype)

    def present_tokens(self) -> np.ndarray:
        """Return bool[batch, vocab_size] that is true for the tokens of each prompt."""
        return np.stack([np.isin(np.arange(self.vocab_size), list(prompt)) for prompt in self.prompts])


def prepare_batch(
    model: PretrainedModel,
    *,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    input_features: Any = None,
    cache_dtype: str = "f32",
    activations: str = "f32",
    target: str | None = None,
) -> Batch:
    """Return the batch of prompts; arguments as for `generate`.

    Raises:
        ConfigError: The model is not a decoder, caches or activations have no such dtype, or the model needs `input_features`,
            or takes none.
        ShapeError: There is no prompt, a prompt is empty, or the texts would be longer than the model's maximum.
    """
    decoding = decoding_of(model)
    check_cache_dtype("generate", cache_dtype)
    if activations not in ACTIVATIONS:
        raise ConfigError(
            f"generate: activations is {activations!r:.40}", hint=f"activations are {' or '.join(ACTIVATIONS)}"
        )
    lengths = [len(prompt) for prompt in prompts]
    if not lengths or not all(lengths):
        raise ShapeError("generate: a prompt must have at least one token", Fact("lengths", lengths))
    encoded = _encode(model, decoding, prompts, input_features, target)
    if decoding.start_token_id is not None:
        prompts = [[decoding.start_token_id]] * len(prompts)
    total = max(map(len, prompts)) + max_new_tokens
    if decoding.max_positions is not None and total > decoding.max_positions:
        message = f"generate: {total} tokens are more than the {decoding.max_positions} positions of {model.name}"
        raise ShapeError(message)
    input_ids, left_padding = _pad_left(prompts)
    return Batch(
        model=model,
        decoding=decoding,
        prompts=prompts,
        max_new_tokens=max_new_tokens,
        input_ids=input_ids,
        left_padding=left_padding,
        encoded=encoded,
        cache_dtype=cache_dtype,
        activations=activations,
        target=target,
    )


def _encode(
    model: PretrainedModel,
    decoding: Decoding,
    prompts: Sequence[Sequence[int]],
    input_features: Any,
    target: str | None,
) -> tuple[Any, ...]:
    """Return the argument `encoded` of steps, on the target: of the prompts or of audio; nothing for decoders."""
    is_audio_model = decoding.encode is not None and decoding.start_token_id is None
    if is_audio_model and input_features is None:
        raise ConfigError(f"generate: {model.name} needs input_features")
    if not is_audio_model and input_features is not None:
        raise ConfigError(f"generate: {model.name} is not an audio model and takes no input_features")
    if decoding.encode is None:
        return ()
    encode = compiled_program(model, "encode", target)
    inputs = (input_features,) if is_audio_model else _pad_right(prompts)
    return (encode(*(rlx.device_put(each, target or encode.report.target) for each in inputs)),)


def _pad_left(prompts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return prompts as i64[batch, length] with padding on the left, and the lengths i64[batch] of the padding."""
    lengths = np.array([len(prompt) for prompt in prompts])
    width = padded_length(int(lengths.max()))
    input_ids = np.zeros((len(prompts), width), np.int64)
    for row, prompt in zip(input_ids, prompts, strict=True):
        row[width - len(prompt) :] = prompt
    return input_ids, width - lengths


def _pad_right(prompts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return prompts as i64[batch, length] with padding on the right, and a mask that is 0 for it."""
    width = padded_length(max(map(len, prompts)))
    input_ids, attention_mask = np.zeros((2, len(prompts), width), np.int64)
    for row, mask, prompt in zip(input_ids, attention_mask, prompts, strict=True):
        row[: len(prompt)], mask[: len(prompt)] = prompt, 1
    return input_ids, attention_mask


@define(eq=False)
class Texts:
    """The continuations of a batch.

    Attributes:
        options: Options of generation.
        stopping_criterion: As for `generate`.
        constraints: The texts by a grammar, or `None`.
        tokens: The new tokens of each prompt, including the one that ended the text.
        unfinished: The prompts whose text has not ended.
    """

    options: GenerationOptions
    stopping_criterion: Callable[[Sequence[int]], bool] | None
    tokens: list[list[int]]
    constraints: list[ConstrainedText] | None = None
    unfinished: set[int] = field(init=False)

    @unfinished.default
    def _all(self) -> set[int]:
        return set(range(len(self.tokens)))

    def suppressed(self) -> np.ndarray | None:
        """Return the mask of tokens with probability 0 in the next step: bool[vocab_size]; by a grammar bool[batch, vocab_size].

        Raises:
            ConfigError: No token may follow in a text.
        """
        mask = self.options.suppressed if any(self.tokens) else self.options.begin_suppressed
        if self.constraints is None:
            return mask
        return np.stack(
            [
                constraint.excluded(mask) if row in self.unfinished else np.zeros(constraint.vocab_size, np.bool_)
                for row, constraint in enumerate(self.constraints)
            ]
        )

    def is_stopped(self, text: Sequence[int]) -> bool:
        """Return whether the stopping criterion ends a text."""
        return self.stopping_criterion is not None and self.stopping_criterion(text)

    def append(self, row: int, token: int) -> bool:
        """Add a token to a text, and return whether it ends the text."""
        text = self.tokens[row]
        text.append(token)
        if token in self.options.eos_token_ids or self.is_stopped(text):
            self.unfinished.discard(row)
        if self.constraints is not None:
            self.constraints[row].advance(token)
            if self.constraints[row].is_finished:
                self.unfinished.discard(row)
        return row not in self.unfinished
