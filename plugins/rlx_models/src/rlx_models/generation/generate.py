"""`generate`: a program that processes prompts, and then token by token, with a cache that is updated in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ConfigError, Fact, ShapeError
from rlx_core.hints.keywords import renamed_keywords
from rlx_models.architectures import Decoding
from rlx_models.generation.options import generation_options
from rlx_models.generation.programs import CACHE_DTYPES, STEPS, compiled_program, decoding_of, padded_length, zero_cache
from rlx_models.generation.sampling import Sampling, sampler
from rlx_models.model import PretrainedModel

RENAMED: Final = {
    "features": "input_features=",
    "stop": "eos_token_id=",
    "until": "stopping_criterion=",
    "suppress": "suppress_tokens=",
    "suppress_first": "begin_suppress_tokens=",
}
"""Former keywords and their replacements."""


@renamed_keywords(RENAMED)
def generate(
    model: PretrainedModel,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    input_features: Any = None,
    key: Any = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float | None = None,
    eos_token_id: int | Sequence[int] | None = None,
    stopping_criterion: Callable[[Sequence[int]], bool] | None = None,
    suppress_tokens: Sequence[int] | None = None,
    begin_suppress_tokens: Sequence[int] | None = None,
    cache_dtype: str = "f32",
    target: str | None = None,
    on_tokens: Callable[[np.ndarray], None] | None = None,
) -> list[list[int]]:
    """Generate continuations of tokenised prompts: greedy decoding, or sampling if a key is given.

    Prompts of different lengths are one batch with masked padding on the left. The program is made once for a model and a
    target, with bound parameters; it is specialised for the length of the prompts, padded to a multiple of 16, and for single
    tokens, with a cache whose length is a power of two.

    Args:
        model: A decoder or an encoder-decoder from `from_pretrained`.
        prompts: Tokens, at least one each. The encoder of T5, BART and Marian reads them; other decoders continue them.
        max_new_tokens: The maximum number of generated tokens.
        input_features: Log-mel spectrogram of audio models (Whisper), f32[batch, mels, frames].
        key: A random key for sampling (`rlx.random.key`).
        temperature, top_k, top_p, min_p: Options of sampling, as for `rlx.random.sample_logits`.
        repetition_penalty: The divisor of positive logits, and multiplier of negative ones, of tokens in the prompt and the
            generated text (Keskar et al. 2019, arXiv:1909.05858); by default that of `generation_config.json`, or 1.
        eos_token_id: Tokens that end a text; by default those of the checkpoint. `()` for none.
        stopping_criterion: A function of the new tokens of a text, called after each token; the text ends if it returns true:
            `lambda new: "\\n\\n" in tokenizer.decode(new)`.
        suppress_tokens: Tokens with probability 0; by default those of the checkpoint, with the `bad_words_ids` of one token.
        begin_suppress_tokens: The same for the first generated token only.
        cache_dtype: The dtype of keys and values in the cache: `f32`, `f16` or `bf16`. In half of the bytes a step reads half as
            much for each token before it; logits change by about one part in 2,000 (f16) or 250 (bf16). Keys and values beyond
            65,504 have no f16. Recurrent states remain f32.
        target: The target that runs the model.
        on_tokens: Called with the tokens i64[batch] of each step, including those of texts that have ended.

    Returns:
        The new tokens of each prompt, including the one that ended the text.

    Raises:
        ConfigError: The model is not a decoder, options of sampling have no key, the penalty is not above 0, a suppressed token
            is outside of the vocabulary, or the cache has no such dtype.
        ShapeError: There is no prompt, a prompt is empty, or the texts would be longer than the model's maximum.
    """
    decoding = decoding_of(model)
    sampling = Sampling(key, temperature, top_k, top_p, min_p)
    sampling.check()
    if cache_dtype not in CACHE_DTYPES:
        raise ConfigError(
            f"generate: cache_dtype is {cache_dtype!r:.40}", hint=f"keys and values are {', '.join(CACHE_DTYPES)}"
        )
    lengths = [len(prompt) for prompt in prompts]
    if not lengths or not all(lengths):
        raise ShapeError("generate: a prompt must have at least one token", Fact("lengths", lengths))
    options = generation_options(
        model,
        eos_token_id=eos_token_id,
        suppress_tokens=suppress_tokens,
        begin_suppress_tokens=begin_suppress_tokens,
        repetition_penalty=repetition_penalty,
    )
    encoded = _encode(model, decoding, prompts, input_features, target)
    if decoding.start_token_id is not None:
        prompts = [[decoding.start_token_id]] * len(prompts)
    total = max(map(len, prompts)) + max_new_tokens
    if decoding.max_positions is not None and total > decoding.max_positions:
        message = f"generate: {total} tokens are more than the {decoding.max_positions} positions of {model.name}"
        raise ShapeError(message)

    step, sample = compiled_program(model, STEPS[cache_dtype], target), sampler(target)
    input_ids, left_padding = _pad_left(prompts)
    width = input_ids.shape[1]
    cache = zero_cache(decoding, len(prompts), width + max_new_tokens, target or step.report.target, cache_dtype)
    penalty = options.repetition_penalty
    present = None if penalty == 1.0 else _present_tokens(prompts, model.config["vocab_size"])
    texts: list[list[int]] = [[] for _ in prompts]
    unfinished = set(range(len(texts)))
    for index in range(max_new_tokens):
        cache_position = np.array(0 if index == 0 else width + index - 1)
        logits, cache = step(input_ids, left_padding, cache, cache_position, *encoded)
        suppressed = options.suppressed if index else options.begin_suppressed
        tokens = np.asarray(sample(logits, suppressed, present, penalty, np.array(index), *sampling.arguments))
        if present is not None:
            present[np.arange(len(tokens)), tokens] = True
        for row in sorted(unfinished):
            texts[row].append(int(tokens[row]))
            is_end = texts[row][-1] in options.eos_token_ids
            if is_end or (stopping_criterion is not None and stopping_criterion(texts[row])):
                unfinished.discard(row)
        if on_tokens is not None:
            on_tokens(tokens)
        if not unfinished:
            break
        input_ids = tokens[:, None]
    return texts


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


def _present_tokens(prompts: Sequence[Sequence[int]], vocab_size: int) -> np.ndarray:
    """Return bool[batch, vocab_size] that is true for the tokens of each prompt."""
    return np.stack([np.isin(np.arange(vocab_size), list(prompt)) for prompt in prompts])
