"""Architectures, compared with Transformers on random checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import UnsupportedError
from rlx_models import from_pretrained, generate
from rlx_models.layers.relative_position import relative_position_buckets

torch = pytest.importorskip("torch", reason="python -m pip install torch")
transformers = pytest.importorskip("transformers", reason="python -m pip install transformers")

from random_checkpoints import DECODERS, ENCODERS, READERS, SEEING, SMALL, VIT, WHISPER, ids_of, saved, stored  # noqa: E402  # it needs both


@pytest.mark.medium
@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_agree_with_transformers(name: str, tmp_path: Path) -> None:
    theirs, ours = saved(ENCODERS[name], tmp_path), from_pretrained(tmp_path)
    for rows, length in ((1, 5), (3, 35)):
        ids, mask = ids_of(rows, length), np.ones((rows, length), np.int64)
        mask[-1, 3:], ids[-1, 3:] = 0, 1
        with torch.no_grad():
            expected = theirs(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask)).last_hidden_state.numpy()
        np.testing.assert_allclose(ours(ids, mask)[mask > 0], expected[mask > 0], atol=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("name", DECODERS)
def test_decoders_agree_with_transformers(name: str, tmp_path: Path) -> None:
    theirs, ours = saved(DECODERS[name], tmp_path), from_pretrained(tmp_path)
    for rows, length in ((1, 5), (3, 70)):
        ids = ids_of(rows, length)
        with torch.no_grad():
            expected = theirs(torch.tensor(ids)).logits.numpy()
        np.testing.assert_allclose(ours(ids), expected, atol=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("name", DECODERS)
def test_greedy_continuations_agree_with_transformers(name: str, tmp_path: Path) -> None:
    """Prompts of three lengths in one batch, against one text at a time without a cache."""
    theirs, ours = saved(DECODERS[name], tmp_path), from_pretrained(tmp_path)
    prompts = [ids_of(1, length)[0].tolist() for length in (1, 6, 9)]
    found = generate(ours, prompts, 12, eos_token_id=())
    for prompt, row in zip(prompts, found, strict=True):
        text = list(prompt)
        for _ in range(12):
            with torch.no_grad():
                text.append(int(theirs(torch.tensor([text])).logits[0, -1].argmax()))
        assert row == text[len(prompt) :]


OLDER: dict[str, dict[str, Any]] = {
    "gemma3": {"rope_parameters": None, "layer_types": None, "rope_theta": 500.0, "rope_local_base_freq": 50.0,
               "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "sliding_window_pattern": 2},
    "deepseek_v3": {"rope_parameters": None, "rope_theta": 500.0, "num_nextn_predict_layers": 1, "scoring_func": "sigmoid",
                    "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32, "beta_fast": 16,
                                     "beta_slow": 2, "mscale": 1.0, "mscale_all_dim": 0.7}},
    "gpt_oss": {"rope_parameters": None, "rope_theta": 500.0, "layer_types": None,
                "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "truncate": False}},
    "smollm3": {"rope_parameters": None, "rope_theta": 500.0, "no_rope_layers": None, "no_rope_layer_interval": 2},
    "stablelm": {"rope_parameters": None, "rope_theta": 500.0, "partial_rotary_factor": 0.5},
}  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("name", OLDER)
def test_options_of_older_configurations_are_read(name: str, tmp_path: Path) -> None:
    """Older files have options of rope at the top level, and no lists by layer."""
    module = type(saved(DECODERS[name], tmp_path))
    path = tmp_path / "config.json"
    rows = {**json.loads(path.read_text()), **OLDER[name]}
    path.write_text(json.dumps({option: each for option, each in rows.items() if each is not None}))
    theirs, ours, ids = module.from_pretrained(tmp_path).eval(), from_pretrained(tmp_path), ids_of(2, 70)
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).logits.numpy()
    np.testing.assert_allclose(ours(ids), expected, atol=1e-5)


REFUSED: dict[str, dict[str, Any]] = {
    "gemma3": {
        "use_bidirectional_attention": True,
        "attn_logit_softcapping": 2.0,
        "rope_parameters": {"rope_theta": 5.0},
    },
    "qwen2_moe": {"use_sliding_window": True},
    "llama": {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
    "deepseek_v3": {"scoring_func": "softmax", "n_group": 3, "topk_method": "greedy"},
    "olmo2": {"layer_types": ["sliding_attention"] * 2, "hidden_act": "swish9", "rms_norm_eps": "small"},
    "smollm3": {"no_rope_layers": [1], "use_sliding_window": True},
    "granite": {"logits_scaling": 0, "quantization_config": {"quant_method": "mxfp4"}},
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_options_are_rejected_by_name(name: str, tmp_path: Path) -> None:
    saved(DECODERS[name], tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **REFUSED[name]}))
    with pytest.raises(UnsupportedError) as caught:
        from_pretrained(tmp_path)
    for option in REFUSED[name]:
        assert option in str(caught.value)


@pytest.mark.medium
def test_shards_and_bfloat16_weights_are_read(tmp_path: Path) -> None:
    theirs = saved(DECODERS["llama"], tmp_path / "whole")
    theirs.to(torch.bfloat16).save_pretrained(tmp_path / "parts", max_shard_size="10KB")
    assert (tmp_path / "parts" / "model.safetensors.index.json").exists()
    ours, ids = from_pretrained(tmp_path / "parts"), ids_of(1, 5)
    assert {str(each.dtype) for each in ours.parameters.values()} == {"bfloat16"}
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).logits.float().numpy()
    np.testing.assert_allclose(np.asarray(ours(ids), np.float32), expected, atol=0.15)
    assert [len(row) for row in generate(ours, ids.tolist(), 4, eos_token_id=())] == [4]


@pytest.mark.medium
def test_gradients_of_all_parameters_are_finite(tmp_path: Path) -> None:
    saved(DECODERS["llama"], tmp_path)
    ours, ids = from_pretrained(tmp_path), ids_of(2, 6)
    loss = lambda p: rlx.mean(ours.function(p, ids) ** 2)  # noqa: E731
    gradients = rlx.grad(loss)(dict(ours.parameters))
    assert all(np.isfinite(each).all() and each.any() for each in gradients.values())


@pytest.mark.medium
@pytest.mark.parametrize("name", READERS)
def test_encoder_decoders_agree_with_transformers(name: str, tmp_path: Path) -> None:
    theirs, ours = stored(READERS[name], tmp_path), from_pretrained(tmp_path)
    for rows, length, steps in ((1, 5, 1), (3, 40, 33)):
        ids, mask, written = ids_of(rows, length), np.ones((rows, length), np.int64), ids_of(rows, steps)
        mask[-1, 3:] = 0
        with torch.no_grad():
            expected = theirs(*map(torch.tensor, (ids, mask, written)))
        np.testing.assert_allclose(ours(ids, mask, written), expected.logits.numpy(), atol=1e-5)
        features = expected.encoder_last_hidden_state.numpy()
        np.testing.assert_allclose(ours.encoder(ids, mask)[mask > 0], features[mask > 0], atol=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("name", READERS)
def test_generated_texts_agree_with_transformers(name: str, tmp_path: Path) -> None:
    theirs, ours = stored(READERS[name], tmp_path), from_pretrained(tmp_path)
    prompts = [ids_of(1, length)[0].tolist() for length in (1, 6, 20)]
    found = generate(ours, prompts, 12)
    for prompt, row in zip(prompts, found, strict=True):
        with torch.no_grad():
            (expected,) = theirs.generate(
                torch.tensor([prompt]), max_new_tokens=12, do_sample=False, num_beams=1
            ).tolist()
        assert row == expected[1:]


@pytest.mark.parametrize("is_causal", [True, False])
def test_relative_position_buckets_agree_with_transformers(is_causal: bool) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    for count, reach in ((32, 128), (8, 20), (64, 256)):
        distances = torch.arange(-reach, reach + 1)
        theirs = T5Attention._relative_position_bucket(distances, not is_causal, count, reach)
        np.testing.assert_array_equal(relative_position_buckets(count, reach, is_causal=is_causal), theirs.numpy())


@pytest.mark.medium
@pytest.mark.parametrize("name", SEEING)
def test_vit_agrees_with_transformers(name: str, tmp_path: Path) -> None:
    theirs, ours = saved(SEEING[name], tmp_path), from_pretrained(tmp_path)
    for rows in (1, 3):
        shape = ours.inputs["pixel_values"].shape[1:]
        pixels = np.random.default_rng(rows).standard_normal((rows, *shape)).astype(np.float32)
        with torch.no_grad():
            found = theirs(torch.tensor(pixels))
        expected = found.logits if name == "classifier" else found.last_hidden_state
        np.testing.assert_allclose(ours(pixels), expected.numpy(), atol=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("end", [2, 60])
def test_clip_agrees_with_transformers(end: int, tmp_path: Path) -> None:
    """The end of a text is its highest token id in older configurations."""
    text = {**SMALL, "max_position_embeddings": 40, "eos_token_id": end, "bos_token_id": 0}
    seen = {**VIT, "image_size": 8, "intermediate_size": 40}
    made = ("CLIPConfig", "CLIPModel", {"text_config": text, "vision_config": seen, "projection_dim": 24})
    theirs, ours = saved(made, tmp_path), from_pretrained(tmp_path)
    for texts, pictures in ((1, 3), (4, 2)):
        ids = ids_of(texts, 7)
        ids[0, 3:], ids[1:, -1] = 60, 60
        pixels = np.random.default_rng(pictures).standard_normal((pictures, 3, 8, 8)).astype(np.float32)
        with torch.no_grad():
            expected = theirs(input_ids=torch.tensor(ids), pixel_values=torch.tensor(pixels))
        found = ours(ids, pixels)
        np.testing.assert_allclose(found["logits_per_image"], expected.logits_per_image.numpy(), atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(ours.submodel("text_encoder")(ids), expected.text_embeds.numpy(), atol=1e-5)
        np.testing.assert_allclose(ours.submodel("image_encoder")(pixels), expected.image_embeds.numpy(), atol=1e-5)


@pytest.mark.medium
def test_whisper_agrees_with_transformers(tmp_path: Path) -> None:
    theirs, ours = saved(WHISPER, tmp_path), from_pretrained(tmp_path)
    for rows, length in ((1, 3), (3, 20)):
        features = np.random.default_rng(rows).standard_normal((rows, 8, 40)).astype(np.float32)
        ids = ids_of(rows, length)
        with torch.no_grad():
            expected = theirs(torch.tensor(features), decoder_input_ids=torch.tensor(ids))
        np.testing.assert_allclose(ours(features, ids), expected.logits.numpy(), atol=1e-5)
        np.testing.assert_allclose(ours.encoder(features), expected.encoder_last_hidden_state.numpy(), atol=1e-5)
    prompts = [ids_of(1, length)[0].tolist() for length in (1, 4, 9)]
    found = generate(ours, prompts, 12, input_features=features, eos_token_id=())
    for heard, prompt, row in zip(features, prompts, found, strict=True):
        text = list(prompt)
        for _ in range(12):
            with torch.no_grad():
                said = theirs(torch.tensor(heard[None]), decoder_input_ids=torch.tensor([text])).logits
            text.append(int(said[0, -1].argmax()))
        assert row == text[len(prompt) :]
    theirs.generation_config.suppress_tokens = found[0][:2]
    theirs.generation_config.begin_suppress_tokens = found[0][2:4]
    theirs.save_pretrained(tmp_path)
    with torch.no_grad():
        written = theirs.generate(torch.tensor(features), max_new_tokens=6, do_sample=False, num_beams=1)
    for row, each in zip(
        generate(from_pretrained(tmp_path), [[3]] * 3, 6, input_features=features), written, strict=True
    ):
        assert [t for t in row if t != 2] == [t for t in each.tolist() if t not in (0, 2)]  # they leave ends out
