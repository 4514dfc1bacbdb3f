"""Large tensors' bytes are taken out of a file before protobuf reads it: with them put back, it is the file's model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto
from onnx_graphs import model, node
from onnx_mutations import _bytes

from rlx_onnx import load
from rlx_onnx.reading.weights import mapped_weights

WEIGHTS = {name: np.random.default_rng(n).random((17, 17 + n), np.float32) for n, name in enumerate("uvw")}


def proto() -> ModelProto:
    nodes = [node("MatMul", ["x", "u"], ["y"]), node("MatMul", ["x", "v"], ["z"])]
    return model(nodes, ["x: f32[n, 17]"], ["y: f32[n, 17]", "z: f32[n, 18]"], WEIGHTS)


def put_back(data: bytes, taken: dict[str, np.ndarray]) -> ModelProto:
    found = ModelProto.FromString(data)
    for tensor in found.graph.initializer:
        if tensor.name in taken and tensor.external_data:
            tensor.raw_data = taken.pop(tensor.name).tobytes()
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
    assert not taken
    return found


def as_protobuf_reads(data: bytes) -> ModelProto | None:
    try:
        return ModelProto.FromString(data)
    except DecodeError:
        return None


def test_tensors_lie_in_the_file() -> None:
    data = np.frombuffer(proto().SerializeToString(), np.uint8)
    rest, taken = mapped_weights(data)
    assert taken.keys() == WEIGHTS.keys()
    assert all(np.shares_memory(each, data) for each in taken.values())
    assert len(rest) + sum(map(len, taken.values())) < len(data) + 200
    assert put_back(rest, taken) == proto()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_changed_bytes_are_read_as_protobuf_reads_them(seed: int) -> None:
    """Also what is broken, in an unusual order, or twice: bytes are inserted, repeated, changed and left out."""
    rng, whole, refused = np.random.default_rng(seed), proto().SerializeToString(), 0
    for _ in range(100 if seed == 0 else 20000):
        # The weights are most of the bytes: what matters is around them.
        cut = int(rng.integers(4)) * len(whole) // 4
        data = _bytes(whole[:200], rng) + whole[200:] if cut == 0 else whole[:cut] + _bytes(whole[cut:], rng)
        expected = as_protobuf_reads(data)
        rest, taken = mapped_weights(np.frombuffer(data, np.uint8))
        if expected is None:
            refused += 1
            assert as_protobuf_reads(rest) is None
        else:
            assert put_back(rest, taken).SerializeToString(deterministic=True) == expected.SerializeToString(
                deterministic=True
            )
    assert refused > 10


@pytest.mark.parametrize("change", ["twice", "elsewhere", "segments"])
def test_what_is_unusual_is_left_to_protobuf(change: str) -> None:
    found = proto()
    tensor: Any = found.graph.initializer[0]
    if change == "twice":
        tensor.name = "v"
    elif change == "elsewhere":
        tensor.data_location = TensorProto.EXTERNAL
    else:
        tensor.ClearField("raw_data")
        tensor.float_data.extend([1.0] * 17**2)
    data = found.SerializeToString()
    rest, taken = mapped_weights(np.frombuffer(data, np.uint8))
    assert put_back(rest, dict(taken)) == found
    assert len(taken) == 2


@pytest.mark.medium
def test_a_model_of_a_file_computes_what_the_one_in_memory_does(tmp_path: Path) -> None:
    x = np.random.default_rng(3).random((4, 17), np.float32)
    for pad in range(4):  # so that tensors lie at any byte
        found = proto()
        found.producer_name = "p" * pad
        onnx.save(found, str(tmp_path / "m.onnx"))
        of_file = load(tmp_path / "m.onnx")(x)
        np.testing.assert_array_equal(of_file["y"], load(found)(x)["y"])
        np.testing.assert_allclose(of_file["z"], x @ WEIGHTS["v"], rtol=1e-5)
