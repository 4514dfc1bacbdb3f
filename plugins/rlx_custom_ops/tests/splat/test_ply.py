"""Files of scenes: there and back, and files that are cut off, wrong, or meant to harm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlx_core.errors import FileError, FormatError, RlxError
from rlx_custom_ops.splat import Gaussians, read_ply, write_ply

COLUMNS = ("x y z", "f_dc_0 f_dc_1 f_dc_2", "opacity", "scale_0 scale_1 scale_2", "rot_0 rot_1 rot_2 rot_3")
NAMES = [name for names in COLUMNS for name in names.split()]
HEAD = b"ply\nformat ascii 1.0\nelement vertex 1\n"
BODY = b"".join(f"property float {name}\n".encode() for name in NAMES) + b"end_header\n"


def scene(count: int, coefficients: int) -> Gaussians:
    rng = np.random.default_rng(0)
    shapes = ((count, 3), (count, 3), (count, 4), (count,), (count, 3), (count, coefficients, 3))
    return Gaussians(*(rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes))


@pytest.mark.parametrize("coefficients", [0, 3, 8, 15])
@pytest.mark.parametrize("count", [0, 7])
def test_there_and_back(tmp_path: Path, count: int, coefficients: int) -> None:
    written = scene(count, coefficients)
    write_ply(tmp_path / "scene.ply", written)
    for name, found, wanted in zip(Gaussians._fields, read_ply(tmp_path / "scene.ply"), written, strict=True):
        assert found.shape == wanted.shape, name
        np.testing.assert_allclose(found, wanted, atol=1e-6)  # colours are scaled and moved, in float32
    assert [path.name for path in tmp_path.iterdir()] == ["scene.ply"]


@pytest.mark.parametrize("encoding", ["ascii", "binary_big_endian", "binary_little_endian"])
def test_every_encoding_and_properties_in_any_order(tmp_path: Path, encoding: str) -> None:
    names = [*reversed(NAMES), "nx"]
    numbers = np.arange(2 * len(names), dtype=np.float32).reshape(2, -1)
    head = f"ply\nformat {encoding} 1.0\ncomment made by a test\nelement vertex 2\n"
    head += "".join(f"property float {name}\n" for name in names) + "end_header\n"
    order = ">" if "big" in encoding else "<"
    body = (
        " ".join(map(str, numbers.ravel())).encode() if encoding == "ascii" else numbers.astype(f"{order}f4").tobytes()
    )
    (tmp_path / "scene.ply").write_bytes(head.encode() + body)
    found = read_ply(tmp_path / "scene.ply")
    np.testing.assert_array_equal(found.positions, numbers[:, [13, 12, 11]])
    np.testing.assert_array_equal(found.rotations, numbers[:, [2, 1, 0, 3]])
    np.testing.assert_array_equal(found.opacities, numbers[:, 7])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "begins with b''"),
        (b"\x89PNG\r\n\x1a\n", "and not with 'ply'"),
        (b"ply\nformat ascii 1.0\n", "there is no end_header"),
        (b"ply\n" + b"comment x\n" * 20_000 + b"end_header\n", "there is no end_header in the first 65536 bytes"),
        (b"ply\nformat \xff 1.0\nend_header\n", "no ASCII"),
        (b"ply\nformat ascii 2.0\nend_header\n", "'format ascii 2.0' of the header is not understood"),
        (b"ply\nformat ascii 1.0\nend_header\n", "no element vertex"),
        (b"ply\nelement vertex 1\n" + BODY, "no format"),
        (b"ply\nformat ascii 1.0\nelement face 3\nend_header\n", "the first element must be vertex"),
        (b"ply\nformat ascii 1.0\nelement vertex -1\nend_header\n", "not 'vertex' and '-1'"),
        (b"ply\nformat ascii 1.0\nelement vertex 1\nend_header\n", "have no properties"),
        (HEAD + b"property list uchar int x\nend_header\n", "is not understood"),
        (HEAD + b"property float x\nproperty float x\nend_header\n", "'x' is there twice"),
        (HEAD + b"property float x\nend_header\n1\n", "have no f_dc_0, f_dc_1, f_dc_2"),
        (HEAD + b"property float f_rest_0\n" + BODY + b"1 " * 15, "there are 1 properties f_rest_*"),
        (HEAD + BODY + b"1 2 3", "and the file does not hold as many"),
        (HEAD + BODY + b"1 " * 13 + b"one", "there is no number where one should be"),
        (HEAD.replace(b"ascii", b"binary_little_endian") + BODY + b"\0" * 55, "need 56 bytes, and the file holds 55"),
        (HEAD.replace(b"vertex 1", b"vertex 999999999999999999") + BODY + b"1 " * 14, "does not hold as many"),
        (
            HEAD.replace(b"ascii", b"binary_big_endian").replace(b"vertex 1", b"vertex 999999999999999999") + BODY,
            "and the file holds 0",
        ),
        (HEAD.replace(b"vertex 1", b"vertex " + b"9" * 5000) + BODY, "the first element must be vertex"),
    ],
)
def test_what_is_no_scene_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "bad.ply").write_bytes(content)
    with pytest.raises(FormatError) as caught:
        read_ply(tmp_path / "bad.ply")
    assert says in str(caught.value)
    assert "bad.ply" in str(caught.value)


def test_damaged_files_raise_typed_errors_or_are_read(tmp_path: Path) -> None:
    write_ply(tmp_path / "scene.ply", scene(3, 3))
    good, rng, outcomes = (tmp_path / "scene.ply").read_bytes(), np.random.default_rng(0), set()
    for _ in range(300):
        bad = bytearray(good)
        for place in rng.integers(0, len(bad), 3):
            bad[place] = rng.integers(0, 256)
        end = rng.integers(0, len(bad) + 1) if rng.integers(2) else len(bad)
        (tmp_path / "bad.ply").write_bytes(bad[:end])
        try:
            read_ply(tmp_path / "bad.ply")
            outcomes.add("read")
        except RlxError as error:
            outcomes.add(type(error).__name__)
    assert outcomes == {"read", "FormatError"}


def test_places_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        read_ply(tmp_path / "absent.ply")
    with pytest.raises(FileError, match="cannot be written"):
        write_ply(tmp_path / "absent" / "scene.ply", scene(1, 0))
