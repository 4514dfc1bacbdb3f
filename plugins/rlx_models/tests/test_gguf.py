"""GGUF files: what is written reads back here and by the package gguf; hostile files are refused with the place of the fault."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_files import METADATA, entry, file_bytes, key, old_version, plain_tensors, quantized_tensors, small_file

import rlx_core as rlx
from rlx_core.errors import ConfigError, DtypeError, FileError, FormatError, ShapeError, UnsupportedError
from rlx_core.ir.array import is_immutable
from rlx_models import gguf

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")


def same_value(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    return bool(np.array_equal(one, other))


def test_floats_of_metadata_are_f32_in_its_range(tmp_path: Path) -> None:
    """llama.cpp refuses f64 for its keys."""
    gguf.write(tmp_path / "m.gguf", {}, {"epsilon": 1e-5, "list": [1e-5, 1], "wide": [1e-5, 1e300]})
    metadata = gguf.read(tmp_path / "m.gguf").metadata
    assert metadata["epsilon"] == float(np.float32(1e-5))
    assert [metadata[name].dtype for name in ("list", "wide")] == [np.float32, np.float64]


@pytest.mark.parametrize("alignment", [32, 8, 4096])
def test_what_is_written_is_read(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "m.gguf"
    tensors = {**plain_tensors(), **quantized_tensors()}
    gguf.write(path, tensors, METADATA, alignment=alignment)
    file = gguf.read(path)
    assert (file.version, list(file), len(file)) == (3, list(tensors), len(tensors))
    assert list(file.metadata) == list(METADATA)
    assert all(same_value(file.metadata[name], value) for name, value in METADATA.items())
    for name, tensor in tensors.items():
        found = file[name]
        assert found.shape == tensor.shape, name
        if isinstance(tensor, rlx.quantization.QuantizedArray):
            assert found.scheme == tensor.scheme
            fields = found.quantized().fields
            assert all(np.array_equal(fields[each], tensor.fields[each]) for each in tensor.fields)
            assert np.array_equal(found.numpy(), np.asarray(tensor.dequantize()))
        else:
            assert found.scheme is None
            assert (found.numpy().dtype, found.numpy().tobytes()) == (tensor.dtype, np.asarray(tensor).tobytes())
            assert not found.numpy().flags.writeable


def test_fields_are_views_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    gguf.write(path, quantized_tensors(), {})
    for name, tensor in gguf.read(path).items():
        for each, values in tensor.quantized().fields.items():
            assert np.shares_memory(values, tensor.raw), (name, each)
            assert is_immutable(values), (name, each)


def test_numbers_that_are_not_aligned_in_the_file_are_copied(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    written = quantized_tensors(("q4_0", "q8_0"))
    gguf.write(path, {"byte": np.zeros(1, np.int8), **written}, {}, alignment=1)
    for name, tensor in written.items():
        found = gguf.read(path)[name].quantized().fields
        assert all(each.flags.aligned and is_immutable(each) for each in found.values())
        assert all(np.array_equal(found[each], tensor.fields[each]) for each in tensor.fields)


def test_the_package_gguf_reads_what_is_written(tmp_path: Path) -> None:
    reference = pytest.importorskip("gguf")
    path = tmp_path / "m.gguf"
    tensors = {**plain_tensors(), **quantized_tensors()}
    del tensors["number"]  # its reader has no arrays without axes
    gguf.write(path, tensors, {name: value for name, value in METADATA.items() if name != "nested"}, alignment=64)
    found = {tensor.name: tensor for tensor in reference.GGUFReader(path).tensors}
    assert list(found) == list(tensors)
    file = gguf.read(path)
    for name, tensor in found.items():
        assert tuple(reversed(tensor.shape.tolist())) == file[name].shape
        assert np.ascontiguousarray(tensor.data).view(np.uint8).tobytes() == file[name].raw.tobytes(), name
        if file[name].scheme is not None:
            expected = reference.quants.dequantize(tensor.data, tensor.tensor_type)
            assert file[name].numpy().tobytes() == expected.astype(np.float32).tobytes(), name


def test_what_the_package_gguf_writes_is_read(tmp_path: Path) -> None:
    reference = pytest.importorskip("gguf")
    path = tmp_path / "m.gguf"
    writer = reference.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    writer.add_array("tokenizer.ggml.scores", [0.5, -1.0])
    values = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    codes = reference.quants.quantize(values, reference.GGMLQuantizationType.Q8_0)
    writer.add_tensor("codes", codes, raw_dtype=reference.GGMLQuantizationType.Q8_0)
    writer.add_tensor("values", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = gguf.read(path)
    assert file.metadata["llama.block_count"] == 2
    assert file.metadata["tokenizer.ggml.tokens"] == ["a", "b"]
    assert file["codes"].quantized().shape == (4, 64)
    assert np.array_equal(file["values"].numpy(), values)
    expected = reference.quants.dequantize(codes, reference.GGMLQuantizationType.Q8_0)
    assert np.array_equal(file["codes"].numpy(), expected)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", ["plain", "blocks", "metadata"])
def test_older_versions_are_read(tmp_path: Path, version: int, kind: str) -> None:
    path = small_file(tmp_path / "m.gguf", kind)
    new = gguf.read(path)
    (tmp_path / "old.gguf").write_bytes(old_version(path.read_bytes(), version))
    old = gguf.read(tmp_path / "old.gguf")
    assert old.version == version
    assert all(same_value(old.metadata[name], new.metadata[name]) for name in new.metadata)
    assert all(old[name].numpy().tobytes() == new[name].numpy().tobytes() for name in new)


def test_a_tensor_of_an_unknown_type_raises_when_it_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(file_bytes(tensors=[entry("w", [256], type_id=9), entry("v", [1], offset=96)], data=bytes(128)))
    file = gguf.read(path)
    assert (file["w"].shape, file["w"].nbytes, file["w"].dtype) == ((256,), None, None)
    assert file["v"].numpy() == 0
    for data in (file["w"].numpy, file["w"].quantized):
        with pytest.raises(UnsupportedError, match="'w' has the type 9"):
            data()
    with pytest.raises(UnsupportedError, match="'v' is f32, not quantised"):
        file["v"].quantized()


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the magic number has 4 bytes, and 0 are left"),
    "another format": (b"PK\3\4" + bytes(40), r"begins with b'PK\\x03\\x04'"),
    "version 4": (file_bytes(version=4), "the version is 4"),
    "more keys than bytes": (file_bytes(counts=(0, 2**60)), r"\d+ keys are \d+ bytes or more"),
    "more tensors than bytes": (file_bytes(counts=(2**63, 0)), r"tensors are \d+ bytes or more"),
    "a long text": (file_bytes(keys=[key("k", 8, U64.pack(2**40))]), "'k' has 1099511627776 bytes"),
    "a key twice": (file_bytes(keys=[key("k", 0, b"\1")] * 2), "the key 'k' twice"),
    "a type of metadata": (file_bytes(keys=[key("k", 13, bytes(8))]), "the type 13"),
    "a type of elements": (file_bytes(keys=[key("k", 9, U32.pack(77) + U64.pack(1) + bytes(9))]), "the type 77"),
    "a boolean": (file_bytes(keys=[key("k", 7, b"\2")]), "a boolean of 2"),
    "a key of other bytes": (file_bytes(keys=[U64.pack(1) + b"\xff" + U32.pack(0) + b"\0"]), "is not UTF-8"),
    "a text of a list": (
        file_bytes(keys=[key("k", 9, U32.pack(8) + U64.pack(2) + U64.pack(1) + b"a" + U64.pack(1) + b"\xff")]),
        "'k' is not UTF-8",
    ),
    "a long text of a list": (
        file_bytes(keys=[key("k", 9, U32.pack(8) + U64.pack(2) + U64.pack(1) + b"a" + U64.pack(2**63))]),
        "'k' has 9223372036854775808 bytes",
    ),
    "a long array": (file_bytes(keys=[key("k", 9, U32.pack(12) + U64.pack(2**61))]), "elements of 'k' are"),
    "deep arrays": (file_bytes(keys=[key("k", 9, (U32.pack(9) + U64.pack(1)) * 500)]), "more than 8 arrays within"),
    "an alignment of 0": (file_bytes(keys=[key("general.alignment", 4, U32.pack(0))]), "alignment` is 0, not"),
    "an alignment of 48": (file_bytes(keys=[key("general.alignment", 4, U32.pack(48))]), "alignment` is 48, not"),
    "an alignment of text": (file_bytes(keys=[key("general.alignment", 8, U64.pack(1) + b"8")]), "alignment` is '8', not"),
    "5 axes": (file_bytes(tensors=[entry("w", [1] * 5)], data=bytes(32)), "'w' has 5 axes, more than 4"),
    "2**31 axes": (file_bytes(tensors=[entry("w", [1], rank=2**31)], data=bytes(32)), "axes, more than 4"),
    "a size of 0": (file_bytes(tensors=[entry("w", [4, 0])], data=bytes(32)), r"the sizes \[4, 0\]"),
    "a product": (file_bytes(tensors=[entry("w", [2**32, 2**32])], data=bytes(32)), "whose product is not"),
    "a product that wraps": (file_bytes(tensors=[entry("w", [2**63, 2, 1, 3])], data=bytes(32)), "whose product is not"),
    "a tensor beyond the end": (file_bytes(tensors=[entry("w", [9])], data=bytes(32)), "'w' is bytes 0 to 36 of 32"),
    "a tensor of blocks beyond the end": (file_bytes(tensors=[entry("w", [32, 2], 2)], data=bytes(32)), "bytes 0 to 36 of 32"),
    "an offset beyond the end": (file_bytes(tensors=[entry("w", [1], offset=2**64 - 32)], data=bytes(32)), "of 32 bytes"),
    "an unknown type beyond the end": (file_bytes(tensors=[entry("w", [1], 99, 64)], data=bytes(32)), "of 32 bytes"),
    "no data": (file_bytes(tensors=[entry("w", [1])]), "of 0 bytes of data"),
    "an offset between": (file_bytes(tensors=[entry("w", [1], offset=4)], data=bytes(32)), "not at a multiple of 32"),
    "an overlap": (
        file_bytes(tensors=[entry("w", [16]), entry("v", [1], offset=32)], data=bytes(64)),
        "'v' begins at byte 32 of the data, within 'w'",
    ),
    "a name twice": (
        file_bytes(tensors=[entry("w", [1]), entry("w", [1], offset=32)], data=bytes(64)),
        "'w' is in the file twice",
    ),
    "rows that are no blocks": (
        file_bytes(tensors=[entry("w", [16, 2], 2)], data=bytes(32)),
        "rows of 16 elements, and blocks of q4_0 have 32",
    ),
    "a quantised number": (file_bytes(tensors=[entry("w", [], 2)], data=bytes(32)), "rows of 1 elements"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(tmp_path: Path, name: str) -> None:
    data, message = HOSTILE[name]
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message) as caught:
        gguf.read(path)
    assert str(path) in str(caught.value)
    assert "at byte" in str(caught.value)


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    data = small_file(tmp_path / "m.gguf", "metadata").read_bytes()
    for length in range(0, len(data) - 4, 7):
        (tmp_path / "cut.gguf").write_bytes(data[:length])
        with pytest.raises(FormatError):
            gguf.read(tmp_path / "cut.gguf")


def test_a_big_endian_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + struct.pack(">I", 3) + bytes(64))
    with pytest.raises(UnsupportedError, match="big-endian"):
        gguf.read(tmp_path / "m.gguf")


def split_key(name: str, type_id: int, number: int) -> bytes:
    return key(name, type_id, struct.pack("<i" if type_id == 5 else "<H", number))


def written_parts(folder: Path, **changed: tuple[int, int, int]) -> Path:
    """Write a model in two files, with `split.no`, `split.count` and the number of tensors of some changed."""
    for n, tensor in enumerate("ab"):
        number, count, total = changed.get(tensor, (n, 2, 2))
        keys = [split_key("split.no", 2, number), split_key("split.count", 2, count)]
        keys += [split_key("split.tensors.count", 5, total), key("part", 0, bytes([n]))]
        data = struct.pack("<f", n) + bytes(28)
        path = folder / f"m-{n + 1:05}-of-00002.gguf"
        path.write_bytes(file_bytes(keys=keys, tensors=[entry(tensor, [1])], data=data))
    return folder / "m-00001-of-00002.gguf"


@pytest.mark.parametrize("number", [1, 2])
def test_a_model_in_two_files_is_read_by_either(tmp_path: Path, number: int) -> None:
    written_parts(tmp_path)
    file = gguf.read(tmp_path / f"m-{number:05}-of-00002.gguf")
    assert {name: float(tensor.numpy()[0]) for name, tensor in file.items()} == {"a": 0.0, "b": 1.0}
    assert dict(file.metadata) == {"part": 0}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"a": (0, 3, 2)}, "file 1 of 3, and its name does not"),
        ({"a": (1, 2, 2)}, "file 2 of 2, and its name does not"),
        ({"a": (5, 2, 2)}, "are 5 and 2"),
        ({"b": (0, 2, 2)}, "file 1 of 2, and its name does not"),
        ({"b": (0, 1, 2)}, "this is not file 2 of 2"),
        ({"b": (1, 2, 3)}, "different `split.tensors.count`"),
        ({"a": (0, 2, 3), "b": (1, 2, 3)}, "have 2 tensors, and `split.tensors.count` is 3"),
    ],
)
def test_files_that_do_not_agree_are_refused(tmp_path: Path, changed: Any, message: str) -> None:
    path = written_parts(tmp_path, **changed)
    with pytest.raises(FormatError, match=message):
        gguf.read(path)


def test_a_tensor_in_two_files_is_refused_and_a_missing_file_is_named(tmp_path: Path) -> None:
    path = written_parts(tmp_path)
    second = tmp_path / "m-00002-of-00002.gguf"
    second.write_bytes(second.read_bytes().replace(b"\1\0\0\0\0\0\0\0b", b"\1\0\0\0\0\0\0\0a"))
    with pytest.raises(FormatError, match="'a' is in two of the files"):
        gguf.read(path)
    second.unlink()
    with pytest.raises(FileError, match="m-00002-of-00002"):
        gguf.read(path)


@pytest.mark.parametrize(
    ("tensors", "metadata", "error", "message"),
    [
        ({"w": np.zeros((1,) * 5)}, {}, ShapeError, "up to 4 axes"),
        ({"w": np.zeros((2, 0))}, {}, ShapeError, "axes of 1 or more"),
        ({"w": np.zeros(2, bool)}, {}, DtypeError, "'w' is bool"),
        ({"w": rlx.quantization.quantize(np.ones((1, 32)), "int8")}, {}, DtypeError, "the scheme int8"),
        ({3: np.zeros(2)}, {}, ConfigError, "named by a text, not 3"),
        ({}, {"k": None}, ConfigError, "the value of 'k' is None"),
        ({}, {"k": [1, "a"]}, ConfigError, "elements of different types"),
        ({}, {"k": 2**64}, ConfigError, "the value of 'k'"),
        ({}, {"k": "\ud800"}, ConfigError, "is no character"),
        ({}, {4: 1}, ConfigError, "a key of the metadata is 4"),
    ],
)
def test_what_has_no_form_in_a_file_is_refused(
    tmp_path: Path, tensors: Any, metadata: Any, error: type[Exception], message: str
) -> None:
    path = small_file(tmp_path / "m.gguf", "plain")
    before = path.read_bytes()
    with pytest.raises(error, match=message):
        gguf.write(path, tensors, metadata)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["m.gguf"]


def test_an_alignment_is_a_power_of_two(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the alignment is 48"):
        gguf.write(tmp_path / "m.gguf", {}, {}, alignment=48)


@pytest.mark.parametrize("count", [300, pytest.param(20000, marks=pytest.mark.slow)])
def test_changed_files_are_read_or_refused(count: int) -> None:
    """In a process of its own, because what it looks for is also the end of that process."""
    program = Path(__file__).with_name("gguf_mutations.py")
    shared = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run(
        [sys.executable, str(program), str(count), "11"], capture_output=True, text=True, check=False, env=shared
    )
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-1000:]
