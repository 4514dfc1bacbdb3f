"""Beam search against Transformers: the same tokens for batches of prompts, options and architectures."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import LLAMA, written

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_models import PretrainedModel, from_pretrained, generate

OPTIONS: list[dict[str, Any]] = [
    {"num_beams": 4},
    {"num_beams": 3, "length_penalty": 2.0, "early_stopping": "never"},
    {"num_beams": 2, "length_penalty": -1.5, "early_stopping": True},
    {"num_beams": 5, "length_penalty": 0.0, "repetition_penalty": 1.5},
]


@pytest.mark.medium
@pytest.mark.parametrize("name", ["llama", "t5", "bart", "mamba"])
def test_texts_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Each prompt alone in Transformers, three lengths in one batch here; many texts end before the maximum length."""
    torch = pytest.importorskip("torch", reason="python -m pip install torch")
    pytest.importorskip("transformers", reason="python -m pip install transformers")
    from random_checkpoints import DECODERS, READERS, ids_of, stored  # it needs transformers

    theirs = stored(DECODERS[name] if name in DECODERS else READERS[name], tmp_path)
    with torch.no_grad():
        for each in theirs.parameters():  # differences of logits that are not all alike
            each *= 2.0
    theirs.save_pretrained(tmp_path)
    ours, prompts = from_pretrained(tmp_path), [ids_of(1, length)[0].tolist() for length in (1, 6, 20)]
    is_decoder, lengths = name in DECODERS, set()
    # Frequent tokens end texts.
    greedy = generate(ours, prompts, 12, eos_token_id=())
    ends = sorted({greedy[0][2], greedy[1][5]})
    for options in OPTIONS:
        found = generate(ours, prompts, 12, eos_token_id=ends, suppress_tokens=(), begin_suppress_tokens=(), **options)
        for prompt, row in zip(prompts, found, strict=True):
            with torch.no_grad():
                (expected,) = theirs.generate(
                    torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=ends, pad_token_id=0,
                    forced_eos_token_id=None, forced_bos_token_id=None, **options,
                ).tolist()  # fmt: skip
            assert row == expected[len(prompt) if is_decoder else 1 :], options
            lengths.add(len(row))
    assert len(lengths) > 1


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PretrainedModel:
    return from_pretrained(written(tmp_path_factory.mktemp("llama") / "m", LLAMA))


@pytest.mark.medium
def test_enough_beams_find_the_most_probable_text(model: PretrainedModel) -> None:
    """Of all 11³ texts of three tokens, for 121 beams; and no beam search finds a better one than exhaustive search."""
    prompt = [3, 1]

    def score(texts: np.ndarray) -> np.ndarray:
        tokens = np.concatenate([np.broadcast_to(prompt, (len(texts), 2)), texts], axis=1)
        logs = np.asarray(rlx.log_softmax(np.asarray(model(tokens[:, :-1]))[:, 1:], axis=-1))
        return np.take_along_axis(logs, texts[:, :, None], axis=-1)[:, :, 0].sum(axis=1)

    every = np.array(list(itertools.product(range(11), repeat=3)))
    scores = score(every)
    (best,) = generate(model, [prompt], 3, eos_token_id=(), num_beams=121)
    assert best == every[scores.argmax()].tolist()
    (fewer,) = generate(model, [prompt], 3, eos_token_id=(), num_beams=3)
    (greedy,) = generate(model, [prompt], 3, eos_token_id=())
    assert score(np.array([greedy]))[0] <= score(np.array([fewer]))[0] <= scores.max() + 1e-5


@pytest.mark.medium
def test_stopping_criteria_end_texts_of_beams(model: PretrainedModel) -> None:
    for text in generate(
        model, [[1], [2, 6, 3]], 9, eos_token_id=(), num_beams=3, stopping_criterion=lambda new: len(new) == 4
    ):
        assert len(text) == 4
    assert generate(model, [[1]], 0, num_beams=3) == [[]]


def test_options_that_are_not_for_beams_are_errors(model: PretrainedModel) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"num_beams": 0}, "num_beams must be 1 or more, not 0"),
        ({"num_beams": 2, "key": rlx.random.key(0)}, "key is not for beam search"),
        ({"num_beams": 2, "draft": "prompt"}, "draft is not for beam search"),
        ({"num_beams": 2, "on_tokens": print}, "on_tokens is not for beam search"),
        ({"num_beams": 2, "early_stopping": "always"}, "early_stopping is 'always'"),
        ({"length_penalty": 2.0}, "no effect on one beam"),
    ]
    for options, message in cases:
        with pytest.raises(ConfigError, match=message):
            generate(model, [[1]], 4, **options)
