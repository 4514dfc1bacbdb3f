"""Safetensors files: read where they lie, written whole, and no hostile one gets further than a FormatError."""

from __future__ import annotations

import gc
import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import rlx_core as rlx
from rlx_core.errors import DtypeError, FormatError, TraceError, UnsupportedError
from rlx_core.files.safetensors import load_safetensors, open_safetensors, read_metadata, save_safetensors

RNG = np.random.default_rng(7)

ARRAYS = {
    "bool": np.array([True, False, True]),
    "scalar": np.array(2.5, np.float64),
    "empty": np.zeros((0, 3), np.float32),
    "no rows, many columns": np.zeros((4, 0, 7), np.int16),
    "bf16": RNG.standard_normal((2, 3)).astype(ml_dtypes.bfloat16),
    "c64": (RNG.standard_normal(3) + 1j).astype(np.complex64),
    "naïve.weight": RNG.standard_normal((3, 5)).astype(np.float32),
    **{f"f{n}": RNG.standard_normal((2, 2)).astype(f"f{n // 8}") for n in (16, 32, 64)},
    **{f"{k}{n}": np.arange(7).astype(f"{k}{n // 8}") for k in "iu" for n in (8, 16, 32, 64)},
}


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return found.keys() == wanted.keys() and all(
        found[n].dtype == a.dtype and found[n].shape == a.shape and found[n].tobytes() == a.tobytes()
        for n, a in wanted.items()
    )


def file_of(path: Path, header: Any, data: bytes = b"") -> Path:
    """A file with this header: JSON of an object, or bytes as they are."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def row(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


# --------------------------------------------------------------------------------- what is right is read


def test_what_was_saved_is_read_back(tmp_path):
    save_safetensors(tmp_path / "a.safetensors", ARRAYS, {"format": "np", "für": "alle"})

    assert same(load_safetensors(tmp_path / "a.safetensors"), ARRAYS)
    assert read_metadata(tmp_path / "a.safetensors") == {"format": "np", "für": "alle"}


@pytest.mark.parametrize("arrays", [{}, {"one": np.float32([1])}], ids=len)
def test_few_arrays_are_a_file_too(tmp_path, arrays):
    save_safetensors(tmp_path / "a.safetensors", arrays)

    assert same(load_safetensors(tmp_path / "a.safetensors"), arrays)
    assert read_metadata(tmp_path / "a.safetensors") == {}


def test_the_library_reads_what_was_saved(tmp_path):
    wanted = {n: a for n, a in ARRAYS.items() if a.dtype != ml_dtypes.bfloat16}
    save_safetensors(tmp_path / "a.safetensors", wanted)

    assert same(safetensors.numpy.load_file(tmp_path / "a.safetensors"), wanted)


def test_what_the_library_saved_is_read(tmp_path):
    wanted = {n: a for n, a in ARRAYS.items() if a.dtype != ml_dtypes.bfloat16}
    safetensors.numpy.save_file(wanted, tmp_path / "a.safetensors", {"made": "there"})

    assert same(load_safetensors(tmp_path / "a.safetensors"), wanted)
    assert read_metadata(tmp_path / "a.safetensors") == {"made": "there"}


def test_arrays_are_read_only_views_of_one_mapping(tmp_path):
    save_safetensors(tmp_path / "a.safetensors", ARRAYS)
    found = load_safetensors(tmp_path / "a.safetensors")

    assert not any(a.flags.writeable or a.flags.owndata for a in found.values())
    assert all(a.flags.aligned and a.flags.c_contiguous for a in found.values())
    with pytest.raises(ValueError, match="read-only"):
        found["f32"][0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        found["f32"].flags.writeable = True
    starts = [a.__array_interface__["data"][0] for a in found.values() if a.size]
    spread = (tmp_path / "a.safetensors").stat().st_size
    assert max(starts) - min(starts) < spread, "they lie in one mapping"


@pytest.mark.medium
def test_an_array_keeps_the_file_mapped(tmp_path):
    save_safetensors(tmp_path / "a.safetensors", ARRAYS)
    kept = load_safetensors(tmp_path / "a.safetensors")["f64"]
    (tmp_path / "a.safetensors").unlink()
    gc.collect()

    np.testing.assert_array_equal(kept, ARRAYS["f64"])


def test_saving_over_a_file_in_use_does_not_change_its_arrays(tmp_path):
    save_safetensors(tmp_path / "a.safetensors", {"x": np.float32([1, 2])})
    old = load_safetensors(tmp_path / "a.safetensors")
    save_safetensors(tmp_path / "a.safetensors", {"x": old["x"] + 1, "y": old["x"]})

    np.testing.assert_array_equal(old["x"], [1, 2])
    np.testing.assert_array_equal(load_safetensors(tmp_path / "a.safetensors")["x"], [2, 3])
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_tensor_off_its_alignment_is_copied_and_still_read_only(tmp_path):
    header = {"a": row("U8", [1], [0, 1]), "x": row("F32", [2], [1, 9])}
    path = file_of(tmp_path / "a.safetensors", header, b"\x07" + np.float32([1, 2]).tobytes())
    found = load_safetensors(path)["x"]

    assert found.flags.aligned
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, [1, 2])


@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype=">f4").reshape(2, 3), np.arange(12, dtype="i8")[::-2], np.asfortranarray(np.eye(3))],
    ids=["big-endian", "strided", "column-major"],
)
def test_any_layout_and_byte_order_is_saved(tmp_path, array):
    save_safetensors(tmp_path / "a.safetensors", {"x": array})

    np.testing.assert_array_equal(load_safetensors(tmp_path / "a.safetensors")["x"], array)


CODES = np.arange(256, dtype=np.uint8)
FLOATS8 = {"F8_E4M3": ("fp8_e4m3", ml_dtypes.float8_e4m3fn), "F8_E5M2": ("fp8_e5m2", ml_dtypes.float8_e5m2)}


@pytest.mark.parametrize("name", FLOATS8)
def test_tensors_of_f8_are_quantised_arrays(tmp_path, name):
    scheme, element = FLOATS8[name]
    header = {
        "x": row(name, (2, 128), (0, 256)),
        "number": row(name, (), (256, 257)),
        "empty": row(name, (3, 0), (257, 257)),
        "plain": row("I8", (3,), (257, 260)),
    }
    path = file_of(tmp_path / "a.safetensors", header, CODES.tobytes() + CODES[60:61].tobytes() + b"\1\2\3")
    expected = CODES.view(element).astype(np.float32).reshape(2, 128)

    arrays = rlx.load(path)
    assert arrays["x"].scheme.name == f"rlx.{scheme}"
    assert np.array_equal(arrays["x"].dequantize(), expected, equal_nan=True)
    assert np.array_equal(arrays["x"].fields["codes"].reshape(-1), CODES)
    assert arrays["number"] == CODES[60:61].view(element)[0]
    assert (arrays["empty"].shape, arrays["empty"].dtype, arrays["plain"].tolist()) == ((3, 0), np.float32, [1, 2, 3])

    file = open_safetensors(path)
    assert list(file) == list(header)
    tensor = file["x"]
    assert (tensor.shape, tensor.dtype, tensor.nbytes, tensor.type_name) == ((2, 128), rlx.f32, 256, name)
    assert np.array_equal(tensor.numpy(), expected, equal_nan=True)
    assert tensor.quantized().scheme == tensor.scheme == arrays["x"].scheme
    assert (file["plain"].scheme, file["plain"].numpy().tolist()) == (None, [1, 2, 3])
    with pytest.raises(UnsupportedError, match=r"'plain' is I8\[3\], not quantised"):
        file["plain"].quantized()


def test_a_product_reads_the_codes_of_f8(tmp_path):
    path = file_of(tmp_path / "a.safetensors", {"w": row("F8_E4M3", (4, 16), (0, 64))}, CODES[:64].tobytes())
    x = RNG.standard_normal((3, 16)).astype(np.float32)
    weight = CODES[:64].view(ml_dtypes.float8_e4m3fn).astype(np.float32).reshape(4, 16)

    result = rlx.jit(lambda params, x: x @ params["w"].dequantize().T)(rlx.load(path), x)
    np.testing.assert_allclose(result, x @ weight.T, rtol=1e-5, atol=1e-6)


def test_a_tensor_of_an_unknown_type_raises_when_its_data_are_read(tmp_path):
    header = {"x": row("F4", (4,), (0, 2)), "y": row("F32", (1,), (2, 6)), "z": row("F8_E4M", (1,), (6, 7))}
    path = file_of(tmp_path / "a.safetensors", header, bytes(7))

    file = open_safetensors(path)
    assert (file["x"].shape, file["x"].dtype, file["x"].type_name, file["y"].numpy()) == ((4,), None, "F4", 0)
    for data in (file["x"].numpy, file["x"].quantized):
        with pytest.raises(UnsupportedError, match="'x' has the dtype 'F4', and known are BOOL"):
            data()
    with pytest.raises(UnsupportedError) as caught:
        file["z"].numpy()
    assert "F8_E4M3" in str(caught.value)
    with pytest.raises(UnsupportedError, match="'F4'") as caught:
        rlx.load(path)
    assert path in [fact.value for fact in caught.value.facts]
    assert "open_safetensors" in str(caught.value)
    assert read_metadata(path) == {}


# ------------------------------------------------------------------------------- what is wrong is refused

HOSTILE = [
    (b"", "the header starts with b'', not b'{'"),
    (b"[]", "starts with b'\\['"),
    (b"{", "not JSON"),
    (b"{}x", "not JSON"),
    (b'{"x": NaN}', "NaN"),
    (b'{"\xff": 1}', "not JSON"),
    (b"{" * 100_000, "not JSON"),
    (b'{"x": ' + b"[" * 100_000, "not JSON"),
    (b'{"x": ' + b"9" * 5000 + b"}", "not JSON"),
    (b'{"x":' + json.dumps(row()).encode() + b',"x":' + json.dumps(row()).encode() + b"}", "'x' 2 times, not once"),
    (b'{"x": {"dtype": "F32", "dtype": "I8", "shape": [2], "data_offsets": [0, 8]}}', "'dtype' 2 times"),
    ({"x": 3}, "'x' must have dtype, shape and data_offsets, not 3"),
    ({"x": {"dtype": "F32", "shape": [2]}}, "'x' must have dtype, shape and data_offsets"),
    ({"x": row() | {"more": 1}}, "'x' must have dtype, shape and data_offsets"),
    ({"x": row("F8_E4M3")}, r"'x' is F8_E4M3\[2\], 2 bytes, and has 8"),
    ({"x": row("F33", offsets=(0, 9))}, "'x' is bytes 0..9"),
    ({"x": row() | {"dtype": ["F32"]}}, "'x' has the dtype"),
    ({"x": row(shape=[-2])}, "shape of 'x' must be a list of natural numbers"),
    ({"x": row(shape=[2.0])}, "shape of 'x'"),
    ({"x": row(shape=[True, 2])}, "shape of 'x'"),
    ({"x": row() | {"shape": 2}}, "shape of 'x'"),
    ({"x": row(shape=[2**63])}, "below 2\\*\\*63"),
    ({"x": row(shape=[1] * 33)}, "'x' has 33 axes, more than 32"),
    ({"x": row(shape=[2**32, 2**32])}, "more than 9223372036854775807"),
    ({"x": row(shape=[0, 2**62, 2**62], offsets=[0, 0])}, "more than 9223372036854775807"),
    ({"x": row(shape=[3])}, "'x' is f32\\[3\\], 12 bytes, and has 8"),
    ({"x": row(offsets=[0, 12])}, "'x' is bytes 0\\.\\.12 of the 8"),
    ({"x": row(offsets=[8, 0])}, "'x' is bytes 8\\.\\.0 of the 8"),
    ({"x": row(offsets=[2**64, 2**64 + 8])}, "data_offsets of 'x'"),
    ({"x": row(offsets=[-8, 0])}, "data_offsets of 'x'"),
    ({"x": row(offsets=[0, 4, 8])}, "data_offsets of 'x' must be a list of 2"),
    ({"x": row(shape=[1], offsets=[4, 8])}, "'x' leaves a hole after the start: it begins at byte 4, not at 0"),
    ({"x": row(shape=[1], offsets=[0, 4])}, "end at byte 4 of the data, and the file has 8"),
    ({"x": row(), "y": row(shape=[1], offsets=[4, 8])}, "'y' overlaps 'x': it begins at byte 4, not at 8"),
    ({"x": row(), "__metadata__": {"a": 1}}, "__metadata__ must hold texts"),
    ({"x": row(), "__metadata__": "a"}, "__metadata__ must hold texts"),
]


@pytest.mark.parametrize(("header", "says"), HOSTILE, ids=[says[:40] for _, says in HOSTILE])
def test_a_hostile_header_is_refused_with_the_file_the_key_and_both_numbers(tmp_path, header, says):
    path = file_of(tmp_path / "evil.safetensors", header, bytes(8))

    with pytest.raises(FormatError, match=says) as caught:
        load_safetensors(path)
    assert caught.value.facts[-1].value == path


@pytest.mark.parametrize("length", [17, 2**31, 2**63, 2**64 - 1])
def test_a_header_longer_than_the_file_is_refused_before_it_is_read(tmp_path, length):
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", length) + b"{}" + bytes(14))

    with pytest.raises(FormatError, match=f"the header has {length} bytes, and 16 are left"):
        load_safetensors(tmp_path / "a.safetensors")


def test_a_file_cut_at_any_length_is_refused(tmp_path):
    save_safetensors(tmp_path / "a.safetensors", {"x": np.float32([1, 2]), "y": np.int8([3])}, {"k": "v"})
    whole = (tmp_path / "a.safetensors").read_bytes()
    cut = tmp_path / "cut.safetensors"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(FormatError):
            load_safetensors(cut)


@pytest.mark.medium
def test_a_file_with_any_bit_flipped_is_refused_or_differs_in_a_name_a_value_or_the_metadata(tmp_path):
    save_safetensors(tmp_path / "a.safetensors", {"x": np.float32([1, 2]), "y": np.int8([3])}, {"k": "v"})
    whole = (tmp_path / "a.safetensors").read_bytes()
    flipped = tmp_path / "flipped.safetensors"
    refused = 0
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        flipped.write_bytes(damaged)
        try:
            found = load_safetensors(flipped)
        except (FormatError, UnsupportedError):  # the latter for another name of a type
            refused += 1
        else:  # the format has no checksum, so what still is a file is read; it never reaches outside itself
            assert sum(a.nbytes for a in found.values()) == 9
    assert refused > 8 * 8, "every flipped bit of the header's length is found, and most of the header's"


def test_a_directory_or_no_file_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="directory"):
        load_safetensors(tmp_path)
    with pytest.raises(FileNotFoundError):
        load_safetensors(tmp_path / "none.safetensors")


@pytest.mark.parametrize(
    ("arrays", "metadata", "error", "says"),
    [
        ({"x": np.complex128([1])}, None, DtypeError, "'x' is c128"),
        ({"x": object()}, None, TraceError, "'x' is of type object, not an array"),
        ({"x": {"w": np.zeros(2)}}, None, FormatError, "'x' is a dict(.|\\n)*\"x.w\""),
        ({"__metadata__": np.zeros(2)}, None, FormatError, "other than '__metadata__'"),
        ({3: np.zeros(2)}, None, FormatError, "not 3"),
        ({}, {"a": 1}, FormatError, "metadata must be texts"),
    ],
    ids=["dtype", "object", "nested", "reserved", "number", "metadata"],
)
def test_what_cannot_be_saved_leaves_the_old_file(tmp_path, arrays, metadata, error, says):
    path = tmp_path / "a.safetensors"
    save_safetensors(path, {"x": np.zeros(2)})
    before = path.read_bytes()

    with pytest.raises(error, match=says) as caught:
        save_safetensors(path, {"a": np.zeros(1), **arrays}, metadata)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert caught.value.facts[-1].value == path


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    save_safetensors(path, {"x": np.zeros(2)})
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_safetensors(path, {"x": np.ones(2)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
