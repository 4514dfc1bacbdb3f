"""Speculative decoding: greedy texts are those without drafts, and sampled ones have the model's distribution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import CONFIGS, LLAMA, written

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_models import PretrainedModel, from_pretrained, generate
from rlx_models.generation.speculative import CachedModel

PROMPTS = [[1], [2, 6, 3], [8, 4, 1, 2] * 5]
VOCAB_SIZE = 11


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PretrainedModel:
    return from_pretrained(written(tmp_path_factory.mktemp("llama") / "m", LLAMA))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> PretrainedModel:
    """A model of another architecture with other weights."""
    return from_pretrained(written(tmp_path_factory.mktemp("gpt2") / "m", CONFIGS["gpt2"]))


@contextmanager
def counted_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yield the lengths of the inputs of each step of a model or a draft model."""
    lengths: list[int] = []
    logits = CachedModel.logits

    def counting(self: CachedModel, input_ids: np.ndarray, *others: Any) -> Any:
        lengths.append(input_ids.shape[1])
        return logits(self, input_ids, *others)

    with monkeypatch.context() as context:
        context.setattr(CachedModel, "logits", counting)
        yield lengths


@pytest.mark.medium
def test_greedy_texts_are_those_without_drafts(model: PretrainedModel, other: PretrainedModel) -> None:
    """Of prompts of different lengths, which accept different numbers of tokens, with tokens that end them."""
    for options in ({"eos_token_id": ()}, {"eos_token_id": 5}, {"repetition_penalty": 1.6, "suppress_tokens": [4]}):
        expected = generate(model, PROMPTS, 21, **options)
        for count in (1, 4):
            assert generate(model, PROMPTS, 21, draft_model=other, num_draft_tokens=count, **options) == expected
        assert generate(model, PROMPTS, 21, draft="prompt", **options) == expected
    narrow = generate(model, PROMPTS[1:], 9, cache_dtype="f16")
    assert generate(model, PROMPTS[1:], 9, cache_dtype="f16", draft="prompt") == narrow
    until: Callable[..., bool] = lambda new: len(new) == 7  # noqa: E731
    expected = [text[:7] for text in generate(model, PROMPTS, 9, eos_token_id=())]
    assert generate(model, PROMPTS, 9, eos_token_id=(), draft_model=other, stopping_criterion=until) == expected
    assert generate(model, PROMPTS, 1, eos_token_id=(), draft_model=other) == [text[:1] for text in expected]
    assert generate(model, PROMPTS, 0, draft_model=other) == [[], [], []]


@pytest.mark.medium
def test_a_draft_of_the_model_itself_is_accepted(model: PretrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then each step of 3 drafted tokens adds 4: 13 tokens are the first, and 3 steps."""
    expected = generate(model, PROMPTS, 13, eos_token_id=())
    for sampling in ({}, {"key": rlx.random.key(0), "temperature": 2.0, "top_k": 7, "top_p": 0.9}):
        with counted_steps(monkeypatch) as lengths:
            texts = generate(model, PROMPTS, 13, eos_token_id=(), draft_model=model, num_draft_tokens=3, **sampling)
        assert sampling or texts == expected
        assert lengths == [32, 32, *[2, 1, 1, 4] * 3]


@pytest.mark.medium
def test_a_repeated_text_is_drafted_from_the_prompt(model: PretrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = generate(model, [[1, 2]], 40, eos_token_id=())
    with counted_steps(monkeypatch) as lengths:
        assert generate(model, [[1, 2]], 40, eos_token_id=(), draft="prompt") == [text]
    assert len(lengths) < 40, "some drafts were accepted"


@pytest.mark.medium
@pytest.mark.parametrize("source", ["model", "prompt"])
def test_sampled_tokens_have_the_distribution_of_the_model(
    model: PretrainedModel, other: PretrainedModel, source: str
) -> None:
    """Pairs of the second and the third token of 4,000 texts: χ² of about 100 classes, with a probability of 0.001."""
    count, prompt, options = 4000, [3, 1], {"temperature": 1.5, "top_k": 9}
    drafts: dict[str, Any] = {"draft_model": other} if source == "model" else {"draft": "prompt"}
    texts = generate(model, [prompt] * count, 3, eos_token_id=(), key=rlx.random.key(7), **options, **drafts)
    observed = np.zeros((VOCAB_SIZE, VOCAB_SIZE))
    for _, second, third in texts:
        observed[second, third] += 1

    def distribution(tokens: np.ndarray) -> np.ndarray:
        logits = np.asarray(model(tokens))[:, -1] / 1.5
        return np.asarray(rlx.softmax(rlx.random.filter_logits(logits, top_k=9), axis=-1), np.float64)

    grid = np.stack(np.meshgrid(*[np.arange(VOCAB_SIZE)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    first = distribution(np.array([prompt]))[0]
    second = distribution(np.array([[*prompt, each] for each in range(VOCAB_SIZE)]))
    third = distribution(np.concatenate([np.broadcast_to(prompt, (len(grid), 2)), grid], axis=1))
    expected = count * np.einsum("a,ab,abc->bc", first, second, third.reshape(VOCAB_SIZE, VOCAB_SIZE, VOCAB_SIZE))
    assert (observed[expected == 0] == 0).all(), "excluded tokens are not generated"
    # Classes of less than 5 expected texts are one class.
    is_large = expected >= 5
    pairs = [
        *zip(observed[is_large], expected[is_large], strict=True),
        (observed[~is_large].sum(), expected[~is_large].sum()),
    ]
    chi_square, freedom = sum((o - e) ** 2 / e for o, e in pairs if e > 0), len(pairs) - 1
    # Wilson and Hilferty 1931: the cube root of χ² / freedom is about normal; 3.09 is its quantile of 0.999.
    limit = freedom * (1 - 2 / (9 * freedom) + 3.09 * np.sqrt(2 / (9 * freedom))) ** 3
    assert chi_square < limit, (chi_square, freedom)


@pytest.mark.medium
def test_models_and_options_without_drafts_are_errors(model: PretrainedModel, tmp_path: Path) -> None:
    mamba = from_pretrained(written(tmp_path / "mamba", CONFIGS["mamba"]))
    t5 = from_pretrained(written(tmp_path / "t5", CONFIGS["t5"]))
    wide = from_pretrained(written(tmp_path / "wide", {**LLAMA, "vocab_size": 12}))
    cases: list[tuple[PretrainedModel, dict[str, Any], str]] = [
        (mamba, {"draft": "prompt"}, "has a recurrent state"),
        (model, {"draft_model": mamba}, "has a recurrent state"),
        (t5, {"draft": "prompt"}, "has an encoder"),
        (model, {"draft_model": wide}, r"differ \(11 != 12 tokens\)"),
        (model, {"draft": "text"}, "draft is 'text'"),
        (model, {"draft": "prompt", "draft_model": model}, "draft is 'prompt'"),
        (model, {"draft": "prompt", "num_draft_tokens": 0}, "must be 1 or more, not 0"),
        (model, {"draft": "prompt", "on_tokens": print}, "on_tokens is not for drafted tokens"),
    ]
    for each, options, message in cases:
        with pytest.raises(ConfigError, match=message):
            generate(each, [[1]], 4, **options)
