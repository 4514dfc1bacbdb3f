"""Tensors in files beside the model: read from its folder, and from nowhere else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx_graphs import model, node

import rlx_core as rlx
from rlx_core.errors import FormatError, RlxError

WEIGHT = np.arange(4, dtype="f4")


def written(folder: Path, **said: str) -> Path:
    """A model whose weight lies outside, as it says."""
    proto = model([node("Add", ["x", "w"], ["y"])], ["x: f32[4]"], ["y: f32[4]"], {"w": WEIGHT})
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in said.items():
        tensor.external_data.add(key=key, value=value)
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_a_tensor_beside_the_model_is_mapped(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(b"....." + WEIGHT.tobytes() + b"...")

    found = rlx.load(written(tmp_path, location="data/w.bin", offset="5", length="16"))

    assert found(np.zeros(4, "f")).tolist() == [0, 1, 2, 3]
    assert not found.parameters["w"].flags.owndata


def test_what_onnx_writes_is_read(tmp_path: Path) -> None:
    proto = model([node("Add", ["x", "w"], ["y"])], ["x: f32[4]"], ["y: f32[4]"], {"w": WEIGHT})
    onnx.save_model(proto, str(tmp_path / "m.onnx"), save_as_external_data=True, size_threshold=0)

    assert rlx.load(tmp_path / "m.onnx")(np.ones(4, "f")).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/passwd", "a/../../w.bin", "", ".", "C:\\w.bin", "a\0b", "none.bin"]
)
def test_files_elsewhere_are_not_opened(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())

    with pytest.raises(FormatError, match="tensor w"):
        rlx.load(written(folder, location=location))


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Neither a link to a file, nor one to a folder on the way, nor another name of a file."""
    folder, secret = tmp_path / "model", tmp_path / "secret"
    folder.mkdir()
    secret.mkdir()
    (secret / "w.bin").write_bytes(WEIGHT.tobytes())
    (folder / "soft.bin").symlink_to(secret / "w.bin")
    (folder / "way").symlink_to(secret)
    os.link(secret / "w.bin", folder / "hard.bin")
    os.mkfifo(folder / "pipe")

    for location in ("soft.bin", "way/w.bin", "hard.bin", "pipe"):
        with pytest.raises(FormatError, match="tensor w"):
            rlx.load(written(folder, location=location))


@pytest.mark.parametrize(
    "said",
    [
        {"offset": "1", "length": "16"},
        {"offset": "-1"},
        {"length": "15"},
        {"offset": "99999999999999999999"},
        {"length": "-1"},
        {"offset": "x"},
        {"offset": " 0"},
        {"offset": "0_0"},
        {"length": "١٦"},
    ],
)
def test_bytes_that_the_file_does_not_have_are_refused(tmp_path: Path, said: dict[str, Any]) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())

    with pytest.raises(RlxError, match="tensor w"):
        rlx.load(written(tmp_path, location="w.bin", **said))
