"""GPTQ, AWQ and compressed-tensors: weights of the layouts as loops state them, and options that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import FormatError, UnsupportedError
from rlx_models import from_pretrained, generate, quantize
from rlx_models.architectures import ARCHITECTURES
from rlx_models.checkpoints import Config

CONFIG: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 11, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32, "tie_word_embeddings": False,
}  # fmt: skip
GROUP = 16
WEIGHTS = {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": GROUP}
OPTIONS: dict[str, dict[str, Any]] = {
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False},
    "gptq_v2": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "checkpoint_format": "gptq_v2"},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"},
    "compressed": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": WEIGHTS, "input_activations": None}},
    },
}
OPTIONS["symmetric"] = {**OPTIONS["compressed"]}
IDS = np.array([[1, 5, 9, 2]])


def word(codes: list[int]) -> int:
    """Return eight codes as an integer of 32 bits, the first in the lowest bits."""
    unsigned = sum(int(code) << 4 * position for position, code in enumerate(codes))
    return unsigned - 2**32 if unsigned >= 2**31 else unsigned


def words(codes: np.ndarray, order: tuple[int, ...] = tuple(range(8))) -> np.ndarray:
    """Return words of the rows of codes: position p of a word has the code of the column `order[p]`."""
    rows = [[word([row[8 * n + k] for k in order]) for n in range(len(row) // 8)] for row in codes.tolist()]
    return np.array(rows, np.int32)


def packed(
    rng: np.random.Generator, name: str, kind: str, outputs: int, inputs: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the tensors of a random weight, and its values f32[outputs, inputs]."""
    codes = rng.integers(0, 16, (outputs, inputs))
    zeros = (
        rng.integers(1, 16, (outputs, inputs // GROUP))
        if kind != "symmetric"
        else np.full((outputs, inputs // GROUP), 8)
    )
    scales = (rng.random((outputs, inputs // GROUP)) * 0.05 + 0.01).astype(np.float16)
    values = np.empty((outputs, inputs), np.float32)
    for o in range(outputs):
        for i in range(inputs):
            values[o, i] = np.float32(codes[o, i] - zeros[o, i // GROUP]) * np.float32(scales[o, i // GROUP])
    if kind.startswith("gptq"):
        stored = zeros - 1 if kind == "gptq" else zeros
        tensors = {"qweight": words(codes).T, "qzeros": words(stored.T), "scales": scales.T}
        tensors["g_idx"] = np.arange(inputs, dtype=np.int32) // GROUP
    elif kind == "awq":
        order = (0, 2, 4, 6, 1, 3, 5, 7)
        tensors = {"qweight": words(codes.T, order), "qzeros": words(zeros.T, order), "scales": scales.T}
    else:
        tensors = {"weight_packed": words(codes), "weight_scale": scales, "weight_shape": np.array([outputs, inputs])}
        if kind == "compressed":
            tensors["weight_zero_point"] = words(zeros.T).T
    return {f"{name}.{part}": each for part, each in tensors.items()}, values


def checkpoint(folder: Path, kind: str, **changed: Any) -> dict[str, np.ndarray]:
    """Write a checkpoint of packed projections, and return its values by the names of the architecture."""
    rng = np.random.default_rng(0)
    values, tensors = {}, {}
    for name, shape in ARCHITECTURES["llama"](Config(CONFIG)).shapes.items():
        if name.endswith("proj.weight"):
            parts, values[name] = packed(rng, f"model.{name.removesuffix('.weight')}", kind, *shape)
            tensors |= parts
            continue
        array = (rng.standard_normal(shape) * 0.3).astype(np.float16)
        values[name] = array.astype(np.float32)
        tensors[name if name.startswith("lm_head") else f"model.{name}"] = array
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": {**OPTIONS[kind], **changed}}))
    rlx.save(folder / "model.safetensors", {name: np.ascontiguousarray(each) for name, each in tensors.items()})
    return values


@pytest.mark.parametrize("kind", OPTIONS)
def test_packed_weights_are_quantised_arrays_with_the_values_of_the_layout(tmp_path: Path, kind: str) -> None:
    values = checkpoint(tmp_path / "m", kind)
    model = from_pretrained(tmp_path / "m")
    assert model.parameters.keys() == values.keys()
    for name, expected in values.items():
        parameter = model.parameters[name]
        if name.endswith("proj.weight"):
            assert (parameter.scheme.name, parameter.scheme.block) == ("rlx.int4_asymmetric", GROUP)
            assert np.array_equal(parameter.dequantize(), expected), name
        else:
            assert np.array_equal(np.asarray(parameter, np.float32), expected), name
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "config.json").write_text(json.dumps(CONFIG))
    rlx.save(tmp_path / "plain" / "model.safetensors", values)
    plain = from_pretrained(tmp_path / "plain")
    compiled = model.compile()
    np.testing.assert_allclose(compiled(IDS), plain(IDS), rtol=1e-4, atol=1e-4)
    assert compiled.report.expansions == ()
    assert generate(model, [[1, 5]], 3) == generate(plain, [[1, 5]], 3)


def test_a_packed_checkpoint_is_quantised_to_a_file(tmp_path: Path) -> None:
    values = checkpoint(tmp_path / "m", "awq")
    records = quantize(tmp_path / "m", tmp_path / "m.gguf", scheme="q8_0")
    assert {each.stored for each in records if "attn_q.weight" in each.name} == {"int4_asymmetric"}
    parameter = rlx.load(tmp_path / "m.gguf").parameters["layers.0.mlp.down_proj.weight"]
    np.testing.assert_allclose(parameter.dequantize(), values["layers.0.mlp.down_proj.weight"], atol=5e-3)


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "bits": ("gptq", {"bits": 3}),
    "checkpoint_format": ("gptq", {"checkpoint_format": "marlin"}),
    "version": ("awq", {"version": "gemv"}),
    "format": ("compressed", {"format": "int-quantized"}),
    "num_bits": ("compressed", {"config_groups": {"g": {"weights": {**WEIGHTS, "num_bits": 8}}}}),
    "actorder": ("compressed", {"config_groups": {"g": {"weights": {**WEIGHTS, "actorder": "group"}}}}),
    "input_activations": (
        "compressed",
        {"config_groups": {"g": {"weights": WEIGHTS, "input_activations": {"num_bits": 8}}}},
    ),
    "config_groups": ("compressed", {"config_groups": {"a": {"weights": WEIGHTS}, "b": {"weights": WEIGHTS}}}),
}


@pytest.mark.parametrize("option", REFUSED)
def test_unsupported_options_are_refused_by_name(tmp_path: Path, option: str) -> None:
    kind, changed = REFUSED[option]
    checkpoint(tmp_path / "m", kind, **changed)
    with pytest.raises(UnsupportedError) as caught:
        from_pretrained(tmp_path / "m")
    assert f"quantization_config.{option}" in str(caught.value)


def test_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path / "m", "gptq")
    path, name = tmp_path / "m" / "model.safetensors", "model.layers.0.self_attn.q_proj"
    arrays = {key: np.array(each) for key, each in rlx.load(path).items()}

    def refusal(error: type[Exception], **changed: np.ndarray | None) -> str:
        parts = {**arrays, **{f"{name}.{part}": each for part, each in changed.items()}}
        rlx.save(path, {key: each for key, each in parts.items() if each is not None})
        with pytest.raises(error) as caught:
            from_pretrained(tmp_path / "m")
        assert name in str(caught.value)
        return str(caught.value)

    groups = arrays[f"{name}.g_idx"]
    assert "desc_act" in refusal(UnsupportedError, g_idx=groups[::-1].copy())
    assert "has no scales" in refusal(FormatError, scales=None)
    assert "qweight of a packed weight" in refusal(FormatError, qweight=arrays[f"{name}.qweight"].astype(np.int64))
    assert "do not fit each other" in refusal(FormatError, scales=arrays[f"{name}.scales"][:, :8].copy())
    assert "scales of a packed weight" in refusal(FormatError, scales=arrays[f"{name}.scales"][0])
    assert "fit" in refusal(FormatError, qweight=arrays[f"{name}.qweight"][:, :8].copy())
