"""Properties of each model type with small checkpoints; without torch."""

from __future__ import annotations

import numpy as np
import pytest
from small_checkpoints import CONFIGS, written

from rlx_core.errors import ConfigError, ShapeError, UnsupportedError
from rlx_models import from_pretrained, generate


def ids_of(rows: int, length: int) -> np.ndarray:
    return np.random.default_rng(rows * length).integers(1, 11, (rows, length))


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("bloom", "deepseek_v3", "gpt2", "mamba", "mixtral")]


@pytest.mark.parametrize("name", ["llama", *SLOW])
def test_steps_with_a_cache_agree_with_whole_texts(name, tmp_path) -> None:
    """Batched generation with a cache against one call without it."""
    model = from_pretrained(written(tmp_path / "m", CONFIGS[name]))
    prompts = [ids_of(1, length)[0].tolist() for length in (1, 4, 17)]
    for prompt, row in zip(prompts, generate(model, prompts, 5, eos_token_id=()), strict=True):
        said = model(np.array([[*prompt, *row]]))[0].argmax(-1)
        assert row == said[len(prompt) - 1 : -1].tolist()


@pytest.mark.medium
def test_t5_steps_agree_with_whole_texts(tmp_path) -> None:
    model = from_pretrained(written(tmp_path / "m", CONFIGS["t5"]))
    prompts = [ids_of(1, length)[0].tolist() for length in (3, 17)]
    for prompt, row in zip(prompts, generate(model, prompts, 30, eos_token_id=()), strict=True):
        said = model(np.array([prompt]), np.ones((1, len(prompt)), np.int64), np.array([[0, *row]]))[0].argmax(-1)
        assert row == said[:-1].tolist()


@pytest.mark.medium
def test_t5_uses_a_separate_head_if_the_checkpoint_has_one(tmp_path) -> None:
    own = from_pretrained(written(tmp_path / "own", CONFIGS["t5"]))
    shared = from_pretrained(written(tmp_path / "shared", CONFIGS["t5"], without=("lm_head.weight",)))
    given = ids_of(1, 4), np.ones((1, 4), np.int64), ids_of(1, 3)
    head = np.linalg.lstsq(shared.parameters["shared.weight"], shared(*given)[0].T, rcond=None)[0]
    np.testing.assert_allclose(own(*given)[0].T, own.parameters["lm_head.weight"] @ head, atol=1e-4)


@pytest.mark.medium
def test_encoder_is_a_separate_model(tmp_path) -> None:
    whole = from_pretrained(written(tmp_path / "whole", CONFIGS["t5"]))
    alone = from_pretrained(written(tmp_path / "alone", CONFIGS["t5 encoder"]))
    ids, mask = ids_of(2, 5), np.int64([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    assert whole.encoder(ids, mask).shape == alone(ids, mask).shape == (2, 5, 8)
    np.testing.assert_allclose(alone(ids, mask)[1, :2], alone(ids[1:, :2], mask[1:, :2])[0], atol=1e-5)
    with pytest.raises(ConfigError, match="t5 is not an encoder-decoder"):
        _ = alone.encoder
    with pytest.raises(ConfigError, match="t5 has no decoder"):
        generate(alone, [[1]], 3)


@pytest.mark.slow
def test_whisper_steps_agree_with_whole_texts(tmp_path) -> None:
    model = from_pretrained(written(tmp_path / "m", CONFIGS["whisper"]))
    features = np.random.default_rng(0).standard_normal((2, 3, 10)).astype(np.float32)
    prompts = [ids_of(1, length)[0].tolist() for length in (1, 4)]
    for heard, prompt, row in zip(
        features, prompts, generate(model, prompts, 5, input_features=features, eos_token_id=()), strict=True
    ):
        said = model(heard[None], np.array([[*prompt, *row]]))[0].argmax(-1)
        assert row == said[len(prompt) - 1 : -1].tolist()
    assert model.encoder(features).shape == (2, 5, 8)
    with pytest.raises(ConfigError, match="whisper needs input_features"):
        generate(model, prompts, 5)


@pytest.mark.medium
def test_vit_returns_hidden_states_or_logits(tmp_path) -> None:
    seeing = from_pretrained(written(tmp_path / "m", CONFIGS["vit"]))
    naming = from_pretrained(written(tmp_path / "c", CONFIGS["vit classifier"]))
    pixels = np.random.default_rng(0).standard_normal((3, 1, 8, 8)).astype(np.float32)
    seen, named = seeing(pixels), naming(pixels)
    assert seen.shape == (3, 5, 8)
    assert named.shape == (3, 3)
    np.testing.assert_allclose(naming(pixels[1:2])[0], named[1], atol=1e-5)
    with pytest.raises(ShapeError, match="pixel_values"):
        seeing(pixels[:, :, :4])
    with pytest.raises(UnsupportedError) as caught:
        from_pretrained(written(tmp_path / "w", {**CONFIGS["vit classifier"], "image_size": [8, 8, 8], "id2label": 3}))
    assert all(word in str(caught.value) for word in ("image_size", "id2label"))


@pytest.mark.medium
def test_clip_encoders_are_submodels(tmp_path) -> None:
    """Tokens after the end token do not change the embedding of a text."""
    model = from_pretrained(written(tmp_path / "m", CONFIGS["clip"]))
    ids = np.array([[1, 2, 10, 3, 4], [5, 6, 7, 8, 10]])
    pixels = np.random.default_rng(0).standard_normal((3, 1, 8, 8)).astype(np.float32)
    found = model(ids, pixels)
    assert found["logits_per_image"].shape == (3, 2)
    np.testing.assert_allclose(np.linalg.norm(found["text_embeds"], axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(model.submodel("text_encoder")(ids[:1, :3])[0], found["text_embeds"][0], atol=1e-5)
    np.testing.assert_allclose(model.submodel("image_encoder")(pixels), found["image_embeds"], atol=1e-5)
    with pytest.raises(ConfigError, match="clip has no submodel 'sounds'"):
        model.submodel("sounds")
    with pytest.raises(ConfigError, match="clip is not an encoder-decoder"):
        _ = model.encoder


def test_input_features_are_for_audio_models(tmp_path) -> None:
    model = from_pretrained(written(tmp_path / "m", CONFIGS["llama"]))
    with pytest.raises(ConfigError, match="llama is not an audio model"):
        generate(model, [[1]], 3, input_features=np.zeros((1, 3, 10), np.float32))


def test_unsupported_feed_forward_of_t5_is_rejected_by_name(tmp_path) -> None:
    folder = written(tmp_path / "m", CONFIGS["t5"])
    text = (folder / "config.json").read_text().replace("gated-gelu", "gated-swish9")
    (folder / "config.json").write_text(text)
    with pytest.raises(UnsupportedError, match="t5") as caught:
        from_pretrained(folder)
    assert "gated-swish9" in str(caught.value)
