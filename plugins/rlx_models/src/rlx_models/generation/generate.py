"""`generate`: a program that processes prompts, and then token by token, with a cache that is updated in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal

import numpy as np

from rlx_core.errors import ConfigError
from rlx_core.hints.keywords import renamed_keywords
from rlx_models.generation.batch import Batch, Texts, prepare_batch
from rlx_models.generation.beams import BeamOptions, search_beams
from rlx_models.generation.grammar import ConstrainedText, Grammar
from rlx_models.generation.options import generation_options
from rlx_models.generation.programs import decoding_of
from rlx_models.generation.sampling import Sampling, sampler
from rlx_models.generation.speculative import Drafter, ModelDrafter, PromptDrafter, check_drafts, speculate
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
    grammar: Grammar | None = None,
    draft_model: PretrainedModel | None = None,
    draft: str | None = None,
    num_draft_tokens: int = 4,
    num_beams: int = 1,
    length_penalty: float = 1.0,
    early_stopping: bool | Literal["never"] = False,
    cache_dtype: str = "f32",
    activations: str = "f32",
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
        grammar: The texts that may be generated (`rlx_models.json_grammar`); each text ends when it is complete.
        draft_model: A smaller model with the same vocabulary, whose tokens the model verifies, several in a step (speculative
            decoding). Greedy texts are the same, and sampled ones have the same distribution.
        draft: `"prompt"` for drafts from the text itself, without another model.
        num_draft_tokens: The number of drafted tokens in a step.
        num_beams: The number of texts that beam search continues for each prompt; the most probable one is returned.
        length_penalty: The exponent of the length that the logarithm of a text's probability is divided by, in beam search.
        early_stopping: Whether beam search of a prompt is done when `num_beams` texts have ended, although a continued one is
            better for its length; `"never"`: not before no length could make it better.
        cache_dtype: The dtype of keys and values in the cache: `f32`, `f16`, `bf16` or `int8`. In half of the bytes a step reads
            half as much for each token before it; logits change by about one part in 2,000 (f16) or 250 (bf16). Keys and values
            beyond 65,504 have no f16. `int8` are codes with one scale for each token and head, in 0.27 of the bytes for heads of
            64 features; logits change by about one percent. Recurrent states remain f32.
        activations: `f32`, or `int8`: rounded to 8 bits in blocks where they are multiplied by weights of a quantisation scheme
            (pass `quantized-activations`), so that a product of one row takes a quarter to a seventh of the time on the CPU.
            Logits change by about one percent. Other products stay f32.
        target: The target that runs the model.
        on_tokens: Called with the tokens i64[batch] of each step, including those of texts that have ended.

    Returns:
        The new tokens of each prompt, including the one that ended the text.

    Raises:
        ConfigError: The model is not a decoder, options of sampling have no key, the penalty is not above 0, a suppressed token
            is outside of the vocabulary, caches or activations have no such dtype, no token may follow by the grammar, drafts are
            not for the model, the vocabularies differ, or options exclude each other (`key`, `grammar`, drafts, `on_tokens` and
            beams).
        ShapeError: There is no prompt, a prompt is empty, or the texts would be longer than the model's maximum.
    """
    decoding_of(model)
    sampling = Sampling(key, temperature, top_k, top_p, min_p)
    sampling.check()
    is_drafted = check_drafts(model, draft_model, draft, num_draft_tokens)
    if is_drafted and (grammar is not None or on_tokens is not None):
        raise ConfigError(f"generate: {'on_tokens' if grammar is None else 'grammar'} is not for drafted tokens")
    beams = BeamOptions(num_beams=num_beams, length_penalty=length_penalty, early_stopping=early_stopping)
    beams.check(key=key, grammar=grammar, draft_model=draft_model, draft=draft, on_tokens=on_tokens)
    options = generation_options(
        model,
        eos_token_id=eos_token_id,
        suppress_tokens=suppress_tokens,
        begin_suppress_tokens=begin_suppress_tokens,
        repetition_penalty=repetition_penalty,
    )
    prepare = partial(
        prepare_batch,
        prompts=prompts,
        max_new_tokens=max_new_tokens,
        cache_dtype=cache_dtype,
        activations=activations,
        target=target,
    )
    batch = prepare(model, input_features=input_features)
    constraints = None
    if grammar is not None:
        constraints = [ConstrainedText(grammar, batch.vocab_size, options.eos_token_ids) for _ in prompts]
    texts = Texts(options, stopping_criterion, [[] for _ in prompts], constraints)
    if is_drafted:
        drafter: Drafter = PromptDrafter()
        if draft_model is not None:
            drafter = ModelDrafter(prepare(draft_model), sampling, options.suppressed)
        speculate(batch, texts, sampling, drafter, num_draft_tokens)
    elif num_beams > 1:
        search_beams(batch, texts, beams)
    else:
        _decode(batch, texts, sampling, on_tokens)
    return texts.tokens


def _decode(batch: Batch, texts: Texts, sampling: Sampling, on_tokens: Callable[[np.ndarray], None] | None) -> None:
    """Generate a token for each text in each step."""
    options, step, sample = texts.options, batch.step, sampler(batch.target)
    input_ids, cache = batch.input_ids, batch.zero_cache(step)
    penalty = options.repetition_penalty
    present = None if penalty == 1.0 else batch.present_tokens()
    for index in range(batch.max_new_tokens):
        cache_position = np.array(0 if index == 0 else batch.width + index - 1)
        logits, cache = step(input_ids, batch.left_padding, cache, cache_position, *batch.encoded)
        tokens = np.asarray(sample(logits, texts.suppressed(), present, penalty, np.array(index), *sampling.arguments))
        if present is not None:
            present[np.arange(len(tokens)), tokens] = True
        for row in sorted(texts.unfinished):
            texts.append(row, int(tokens[row]))
        if on_tokens is not None:
            on_tokens(tokens)
        if not texts.unfinished:
            break
        input_ids = tokens[:, None]
