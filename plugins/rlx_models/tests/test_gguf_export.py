"""`rlx.save("model.gguf", model)`: a model that is loaded again has the same logits, and the same tokens of texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from gguf_models import OPTIONS, config_of, written_checkpoint, written_gguf
from small_checkpoints import CONFIGS, written

import rlx_core as rlx
from rlx_core.errors import DtypeError, FormatError, UnsupportedError
from rlx_models import from_pretrained, generate, gguf
from rlx_models.architectures import ARCHITECTURES
from rlx_models.architectures.decoders.experts import STACKED
from rlx_models.checkpoints import Config
from rlx_models.gguf import names

IDS = np.array([[1, 5, 9, 2, 60, 3, 3], [7, 0, 63, 5, 1, 8, 2]])


def logits(model: Any) -> np.ndarray:
    return np.asarray(model(IDS))


def checkpoint(folder: Path, model_type: str, **options: Any) -> Path:
    """Write a checkpoint of f32 weights with further options."""
    written_checkpoint(folder, model_type, "f16")
    (folder / "config.json").write_text(json.dumps({**config_of(model_type), **options}))
    return folder


@pytest.mark.parametrize("model_type", OPTIONS)
def test_a_model_that_is_saved_and_loaded_has_the_same_logits(tmp_path: Path, model_type: str) -> None:
    model = from_pretrained(written_checkpoint(tmp_path / "m", model_type, "f16"))
    rlx.save(tmp_path / "m.gguf", model)
    loaded = rlx.load(tmp_path / "m.gguf")
    assert loaded.name == model_type
    assert np.array_equal(logits(loaded), logits(model))
    assert generate(loaded, [[1, 5, 9]], 4) == generate(model, [[1, 5, 9]], 4)
    rlx.save(tmp_path / "again.gguf", loaded)
    first, second = gguf.read(tmp_path / "m.gguf"), gguf.read(tmp_path / "again.gguf")
    assert dict(first.metadata) == dict(second.metadata)
    assert {name: each.raw.tobytes() for name, each in first.items()} == {
        name: each.raw.tobytes() for name, each in second.items()
    }


@pytest.mark.parametrize("model_type", ["llama", "gemma2"])
def test_quantised_weights_are_saved_as_they_are(tmp_path: Path, model_type: str) -> None:
    model = from_pretrained(written_checkpoint(tmp_path / "m", model_type, "f16"))
    parameters = {
        name: rlx.quantization.quantize(each, "q8_0") if each.ndim == 2 else each
        for name, each in model.parameters.items()
    }
    quantized = evolve(model, parameters=parameters)
    rlx.save(tmp_path / "m.gguf", quantized)
    assert gguf.read(tmp_path / "m.gguf").metadata["general.file_type"] == 7
    loaded = rlx.load(tmp_path / "m.gguf")
    assert {type(each) for each in loaded.parameters.values()} == {np.ndarray, rlx.quantization.QuantizedArray}
    assert np.array_equal(logits(loaded), logits(quantized))
    assert not np.array_equal(logits(loaded), logits(model))


ROPE: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 5000.0},
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32, "rope_theta": 5000.0,
    },
}  # fmt: skip


@pytest.mark.parametrize("rope", ROPE)
def test_scaled_rope_is_saved(tmp_path: Path, rope: str) -> None:
    model = from_pretrained(checkpoint(tmp_path / "m", "llama", rope_parameters=ROPE[rope]))
    rlx.save(tmp_path / "m.gguf", model)
    plain = logits(from_pretrained(checkpoint(tmp_path / "plain", "llama")))
    assert np.abs(logits(model) - plain).max() > 0.01
    # Divisors of frequencies (llama3) are f32 in the file.
    np.testing.assert_allclose(logits(rlx.load(tmp_path / "m.gguf")), logits(model), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("model_type", "options", "message"),
    [
        ("llama", {"hidden_act": "gelu"}, "hidden_act"),
        ("llama", {"rope_parameters": {**ROPE["yarn"], "attention_factor": 2.0}}, "attention_factor"),
        ("gemma2", {"query_pre_attn_scalar": 100}, "query_pre_attn_scalar"),
        ("qwen3_moe", {"norm_topk_prob": False}, "norm_topk_prob"),
        ("gemma2", {"final_logit_softcapping": None}, "final_logit_softcapping"),
        ("gemma2", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
    ],
)
def test_an_option_that_files_cannot_state_is_refused(
    tmp_path: Path, model_type: str, options: dict[str, Any], message: str
) -> None:
    model = from_pretrained(checkpoint(tmp_path / "m", model_type, **options))
    with pytest.raises(UnsupportedError, match=f"save: {model_type} with unsupported options") as caught:
        rlx.save(tmp_path / "m.gguf", model)
    assert message in str(caught.value)
    assert not (tmp_path / "m.gguf").exists()


def test_what_files_do_not_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no names for the architecture 'gpt2'"):
        rlx.save(tmp_path / "m.gguf", from_pretrained(written(tmp_path / "gpt2", CONFIGS["gpt2"])))
    with pytest.raises(FormatError, match="a pretrained model of this package, not dict"):
        rlx.save(tmp_path / "m.gguf", {"a": np.ones(3, np.float32)})
    model = from_pretrained(written_checkpoint(tmp_path / "m", "llama", "f16"))
    table = rlx.quantization.quantize(model.parameters["embed_tokens.weight"], "int8")
    with pytest.raises(DtypeError, match=r"'token_embd\.weight' is in the scheme int8"):
        rlx.save(tmp_path / "m.gguf", evolve(model, parameters={**model.parameters, "embed_tokens.weight": table}))
    assert not (tmp_path / "m.gguf").exists()


def test_names_of_tensors_are_inverse(tmp_path: Path) -> None:
    for model_type, label in names.LABELS.items():
        row, config = names.ARCHITECTURES[label], Config({**config_of(model_type), STACKED: True})
        shapes = ARCHITECTURES[model_type](config).shapes
        by_name = {name: row.file_name(name) for name in shapes}
        assert None not in by_name.values(), label
        assert {name: row.tensor_name(each) for name, each in by_name.items() if each} == {
            name: name for name in shapes
        }
    assert row.file_name("layers.0.mlp.experts.weight") is None
    assert row.file_name("norm.bias") is None


def test_the_package_gguf_reads_a_saved_model(tmp_path: Path) -> None:
    reference = pytest.importorskip("gguf", reason="python -m pip install gguf")
    rlx.save(tmp_path / "m.gguf", from_pretrained(written_checkpoint(tmp_path / "m", "llama", "f16")))
    reader = reference.GGUFReader(tmp_path / "m.gguf")
    expected = {
        each.name: each for each in reference.GGUFReader(written_gguf(tmp_path / "n.gguf", "llama", "f16")).tensors
    }
    tensors = {each.name: each for each in reader.tensors}
    assert tensors.keys() == expected.keys()
    for name, each in tensors.items():
        assert np.array_equal(each.data, expected[name].data.astype(np.float32)), name
    # llama.cpp requires these types.
    types = {key: reader.fields[f"llama.{key}"].types[0].name for key in ("block_count", "rope.freq_base")}
    assert types == {"block_count": "UINT32", "rope.freq_base": "FLOAT32"}
    epsilon = reader.fields["llama.attention.layer_norm_rms_epsilon"]
    assert (epsilon.types[0].name, epsilon.contents()) == ("FLOAT32", pytest.approx(1e-5))
