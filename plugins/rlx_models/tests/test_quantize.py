"""`rlx_models.quantize` and `rlx quantize`: files of fewer bits, their errors, and the memory that it takes."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_models import SIZES, weights, written_checkpoint, written_gguf
from small_checkpoints import CONFIGS, written
from typer.testing import CliRunner

import rlx_core as rlx
from rlx_core.cli.main import app
from rlx_core.errors import ConfigError, DtypeError, FileError, ShapeError, UnknownNameError, UnsupportedError
from rlx_models import from_pretrained, generate, gguf, quantize
from rlx_models.gguf import encoding

IDS = np.array([[1, 5, 9, 2, 60, 3, 3]])


@pytest.mark.parametrize("scheme", ["q4_0", "q8_0", "q4_k"])
def test_a_folder_and_its_file_give_the_model_of_quantised_weights(tmp_path: Path, scheme: str) -> None:
    folder = written_checkpoint(tmp_path / "m", "llama", "f16")
    records = quantize(folder, tmp_path / "m.gguf", scheme=scheme)
    model = rlx.load(tmp_path / "m.gguf")
    for name, values in from_pretrained(folder).parameters.items():
        parameter = model.parameters[name]
        if values.ndim == 1:
            assert np.array_equal(parameter, values), name
            continue
        expected = rlx.quantization.quantize(values, scheme).fields
        assert all(np.array_equal(parameter.fields[each], expected[each]) for each in expected), name
    assert generate(model, [[1, 5, 9]], 3)
    file = gguf.read(tmp_path / "m.gguf")
    assert [each.name for each in records] == list(file)
    for record in records:
        tensor = file[record.name]
        assert (record.shape, record.nbytes) == (tensor.shape, tensor.nbytes)
        assert record.scheme == (scheme if len(tensor.shape) == 2 else "f32")
    rlx.save(tmp_path / "plain.gguf", from_pretrained(folder))
    from_file = quantize(tmp_path / "plain.gguf", tmp_path / "from_file.gguf", scheme=scheme)
    assert from_file == records
    assert (tmp_path / "from_file.gguf").read_bytes() == (tmp_path / "m.gguf").read_bytes()


def test_errors_are_those_of_the_values(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((8, 128)).astype(np.float32)
    values[5, 64:96] *= 40
    gguf.write(tmp_path / "m.gguf", {"w": values, "half": values[:, :16], "b": values[0]}, {})
    records = {each.name: each for each in quantize(tmp_path / "m.gguf", tmp_path / "n.gguf", scheme="q4_0")}
    file = gguf.read(tmp_path / "n.gguf")
    differences = np.square(file["w"].numpy() - values.astype(np.float64))
    record, rms = records["w"], np.sqrt(np.mean(np.square(values, dtype=np.float64)))
    assert record.error == pytest.approx(np.sqrt(differences.mean()) / rms)
    blocks = np.sqrt(differences.reshape(8, 4, 32).mean(-1)) / rms
    assert record.worst_block == (5, 2) == np.unravel_index(blocks.argmax(), blocks.shape)
    assert record.worst_error == pytest.approx(blocks.max())
    assert (record.stored, record.scheme, record.nbytes_before, record.nbytes) == ("f32", "q4_0", 4096, 576)
    assert [(records[name].scheme, records[name].error) for name in ("half", "b")] == [("f32", None)] * 2
    assert np.array_equal(file["half"].numpy(), values[:, :16])


def test_tensors_are_kept_by_patterns_of_both_names(tmp_path: Path) -> None:
    folder = written_checkpoint(tmp_path / "m", "llama", "f16")
    keep = {"output.weight": "q6_k", "layers.0.mlp.*": "f16", "blk.*": "q5_0"}
    schemes = {each.name: each.scheme for each in quantize(folder, tmp_path / "m.gguf", scheme="q4_0", keep=keep)}
    assert schemes["output.weight"] == "q6_k"
    assert schemes["token_embd.weight"] == "q4_0"
    assert (schemes["blk.0.ffn_up.weight"], schemes["blk.1.ffn_up.weight"]) == ("f16", "q5_0")
    assert schemes["blk.0.attn_norm.weight"] == "f32"
    assert gguf.read(tmp_path / "m.gguf").metadata["general.file_type"] == 8  # most weights are q5_0
    model = rlx.load(tmp_path / "m.gguf")
    assert np.abs(np.asarray(model(IDS)) - np.asarray(from_pretrained(folder)(IDS))).max() < 0.7


def test_a_scheme_again_copies_and_another_one_encodes_again(tmp_path: Path) -> None:
    first = written_gguf(tmp_path / "m.gguf", "qwen2", "q8_0")
    (record, *_) = quantize(first, tmp_path / "same.gguf", scheme="q8_0")
    assert record.error is None
    before, after = gguf.read(first), gguf.read(tmp_path / "same.gguf")
    assert all(after[name].raw.tobytes() == before[name].raw.tobytes() for name in before)
    (record, *_) = quantize(first, tmp_path / "other.gguf", scheme="q4_0")
    assert record.error is not None
    assert (record.stored, record.nbytes_before, record.nbytes) == ("q8_0", 64 * 8 * 34, 64 * 8 * 18)
    expected = rlx.quantization.quantize(before[record.name].numpy(), "q4_0")
    assert np.array_equal(gguf.read(tmp_path / "other.gguf")[record.name].numpy(), expected.dequantize())


def test_the_package_gguf_reads_the_file(tmp_path: Path) -> None:
    reference = pytest.importorskip("gguf", reason="python -m pip install gguf")
    written_checkpoint(tmp_path / "m", "llama", "f16")
    for scheme in ("q4_0", "q4_k", "bf16"):
        quantize(tmp_path / "m", tmp_path / "m.gguf", scheme=scheme)
        reader = reference.GGUFReader(tmp_path / "m.gguf")
        mine = gguf.read(tmp_path / "m.gguf")
        for tensor in reader.tensors:
            values = reference.quants.dequantize(tensor.data, tensor.tensor_type)
            assert np.array_equal(values, mine[tensor.name].numpy().astype(np.float32)), tensor.name
        kind = reference.LlamaFileType(reader.fields["general.file_type"].contents()).name
        assert kind.removeprefix("MOSTLY_").lower().removesuffix("_m") == scheme
        assert reader.fields["general.architecture"].contents() == "llama"


def test_file_types_are_those_of_llama(tmp_path: Path) -> None:
    reference = pytest.importorskip("gguf", reason="python -m pip install gguf")
    names = {each.value: each.name.removeprefix("MOSTLY_").lower() for each in reference.LlamaFileType}
    for label, number in encoding.FILE_TYPES.items():
        assert names[number].removeprefix("all_").removesuffix("_m").removesuffix("_moe") == label.removesuffix("_m")


def test_memory_does_not_grow_with_the_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "CHUNK_SIZE", 1 << 14)
    values = np.random.default_rng(0).standard_normal((1024, 512)).astype(np.float32)

    def peak(count: int) -> int:
        path = tmp_path / f"{count}.gguf"
        gguf.write(path, {f"w{n}": values for n in range(count)}, {})
        quantize(
            path, tmp_path / "out.gguf", scheme="q8_0"
        )  # imports and compilations of the first call are not counted
        tracemalloc.start()
        quantize(path, tmp_path / "out.gguf", scheme="q8_0")
        result = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result

    one, many = peak(1), peak(12)
    assert one < values.nbytes
    assert many < one + values.nbytes // 4


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "unknown": ({"scheme": "q4"}, UnknownNameError, "q4_0, q4_1, q4_k"),
    "not of files": ({"scheme": "int8"}, ConfigError, "GGUF files do not have the scheme int8"),
    "kept": ({"scheme": "q4_0", "keep": {"*": "q9"}}, UnknownNameError, "unknown scheme 'q9'"),
    "pattern": ({"scheme": "q4_0", "keep": {"outputs.*": "q8_0"}}, ConfigError, "no tensor is named 'outputs.*'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_options_are_refused(tmp_path: Path, case: str) -> None:
    options, error, message = REFUSED[case]
    path = written_gguf(tmp_path / "m.gguf", "llama", "f16")
    with pytest.raises(error) as caught:
        quantize(path, tmp_path / "out.gguf", **options)
    assert message in str(caught.value)
    assert [each.name for each in tmp_path.iterdir()] == ["m.gguf"]


def test_models_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    path, out = written_gguf(tmp_path / "m.gguf", "llama", "f16"), tmp_path / "out.gguf"
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="the output is the model itself"):
        quantize(path, tmp_path / "." / "m.gguf", scheme="q4_0")
    assert path.read_bytes() == before
    with pytest.raises(ConfigError, match=r"writes a \.gguf file, not 'out.bin'"):
        quantize(path, tmp_path / "out.bin", scheme="q4_0")
    with pytest.raises(UnsupportedError, match="quantize: GGUF files have no names for the architecture 'gpt2'"):
        quantize(written(tmp_path / "gpt2", CONFIGS["gpt2"]), out, scheme="q4_0")
    with pytest.raises(ShapeError, match="no tensor has rows of whole blocks of q4_k") as caught:
        quantize(written(tmp_path / "small", CONFIGS["llama"]), out, scheme="q4_k")
    assert "of 8, 12 elements" in str(caught.value)
    with pytest.raises(FileError):
        quantize(tmp_path / "absent", out, scheme="q4_0")
    with pytest.raises(FileError):
        quantize(path, tmp_path / "absent" / "out.gguf", scheme="q4_0")
    assert not out.exists()


def test_values_without_a_code_leave_the_file_as_it_was(tmp_path: Path) -> None:
    values = np.ones((2, 2, 64), np.float32)
    values[1, 1, 3] = np.inf
    gguf.write(tmp_path / "m.gguf", {"a": values[0], "b": values}, {})
    (tmp_path / "out.gguf").write_bytes(b"before")
    with pytest.raises(DtypeError, match="NaN and infinities") as caught:
        quantize(tmp_path / "m.gguf", tmp_path / "out.gguf", scheme="q4_0")
    assert "tensor" in str(caught.value)
    gguf.write(tmp_path / "m.gguf", {"a": np.full((2, 64), 1e6, np.float32)}, {})
    with pytest.raises(DtypeError, match="128 values are beyond the range of f16"):
        quantize(tmp_path / "m.gguf", tmp_path / "out.gguf", scheme="f16")
    assert (tmp_path / "out.gguf").read_bytes() == b"before"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.gguf", "out.gguf"]


def test_the_command_writes_the_file_and_lists_errors(tmp_path: Path) -> None:
    folder = written_checkpoint(tmp_path / "m", "qwen2", "f16")
    arguments = ["quantize", str(folder), "--scheme", "q4_0", "-o", str(tmp_path / "m.gguf"), "--keep", "blk.0.*=q8_0"]
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "140"})
    assert shown.exit_code == 0, shown.output
    rows = {line.split()[0]: line for line in shown.output.splitlines() if line.strip()}
    assert "f32 → q4_0" in rows["blk.1.ffn_up.weight"]
    assert "512×256" in rows["blk.0.ffn_up.weight"]
    assert "f32 → q8_0" in rows["blk.0.ffn_up.weight"]
    assert "26 tensors" in shown.output
    answer = CliRunner().invoke(app, [*arguments, "--json"])
    records = {each["name"]: each for each in json.loads(answer.output)}
    assert len(records) == 26
    assert records["token_embd.weight"]["nbytes"] == SIZES["vocab_size"] * SIZES["hidden_size"] // 32 * 18
    assert f"{records['blk.1.ffn_up.weight']['error']:.5f}" in rows["blk.1.ffn_up.weight"]
    assert np.isfinite(np.asarray(rlx.load(tmp_path / "m.gguf")(IDS))).all()
    for word in ("blk", "=q8_0", "blk=", "blk.0.*=q4_0"):
        refused = CliRunner().invoke(app, [*arguments, "--keep", word])
        assert refused.exit_code == 2
        assert "--keep" in refused.output


def test_the_command_shows_what_names_there_are(tmp_path: Path) -> None:
    path = written_gguf(tmp_path / "m.gguf", "llama", "f16")
    refused = CliRunner().invoke(app, ["quantize", str(path), "--scheme", "q44", "-o", str(tmp_path / "n.gguf")])
    assert refused.exit_code == 2
    assert "q4_0" in refused.output
    assert len(weights("llama")) == len(gguf.read(path))
