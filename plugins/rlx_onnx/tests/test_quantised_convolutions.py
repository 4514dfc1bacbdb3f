"""Convolutions of codes: QDQ regions, QLinearConv and ConvInteger as products of integers, equal to what ONNX Runtime computes.

Weights have six bits, because ONNX Runtime's sums of 16 bits saturate with more on processors without VNNI.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_graphs import model, node

import rlx_core as rlx

runtime = pytest.importorskip("onnxruntime")

DRAW = np.random.default_rng(0)


class Layers:
    """Nodes and tensors of a QDQ model."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.tensors: dict[str, np.ndarray] = {}

    def tensor(self, array: Any) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors[name] = np.asarray(array)
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"y{len(self.nodes)}"
        self.nodes.append(node(kind, list(inputs), [name], **attributes))
        return name

    def requantised(self, x: str, scale: float, zero: int) -> str:
        """x rounded to codes, and dequantised."""
        steps, offset = self.tensor(np.float32(scale)), self.tensor(np.uint8(zero))
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, steps, offset), steps, offset)

    def conv(self, x: str, channels: tuple[int, int], x_scale: float, cells: int = 1, **attributes: Any) -> str:
        """A convolution with a weight and a bias in codes, one scale for each result."""
        c, m = channels
        groups = attributes.get("group", 1)
        scales = DRAW.uniform(0.002, 0.004, m).astype(np.float32)
        w = DRAW.integers(-31, 32, (m, c // groups, cells, cells)).astype(np.int8)
        b = DRAW.integers(-2000, 2000, m).astype(np.int32)
        weight = self.op(
            "DequantizeLinear", self.tensor(w), self.tensor(scales), self.tensor(np.zeros(m, np.int8)), axis=0
        )
        units = self.tensor(np.float32(x_scale) * scales)
        bias = self.op("DequantizeLinear", self.tensor(b), units, self.tensor(np.zeros(m, np.int32)), axis=0)
        pads = [cells // 2] * 4
        return self.op("Conv", x, weight, bias, kernel_shape=[cells, cells], pads=pads, **attributes)


def residual_block(layers: Layers) -> str:
    x = layers.requantised("x", 0.02, 117)
    y = layers.requantised(layers.conv(x, (8, 12), 0.02), 0.01, 0)
    y = layers.requantised(layers.conv(y, (12, 12), 0.01, 3), 0.015, 0)
    y = layers.requantised(layers.conv(y, (12, 8), 0.015), 0.02, 130)
    return layers.requantised(layers.op("Add", y, x), 0.03, 121)


def separable_block(layers: Layers) -> str:
    x = layers.requantised("x", 0.02, 117)
    y = layers.requantised(layers.conv(x, (8, 24), 0.02), 0.01, 0)
    y = layers.requantised(layers.conv(y, (24, 24), 0.01, 3, group=24, strides=[2, 2]), 0.005, 0)
    return layers.requantised(layers.conv(y, (24, 8), 0.005, 3, dilations=[1, 1]), 0.02, 130)


def stem(layers: Layers) -> str:
    """An odd number of channels, a stride, a pool between codes, groups."""
    x = layers.requantised("x", 0.02, 117)
    y = layers.requantised(layers.conv(x, (3, 16), 0.02, 3, strides=[2, 2]), 0.01, 0)
    y = layers.requantised(layers.op("MaxPool", y, kernel_shape=[2, 2], strides=[1, 1]), 0.01, 0)
    return layers.requantised(layers.conv(y, (16, 8), 0.01, 3, group=2), 0.01, 100)


BLOCKS = {"residual": (residual_block, 8), "separable": (separable_block, 8), "stem": (stem, 3)}


@pytest.mark.parametrize("batch", [2, "n"])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_have_the_codes_of_onnx_runtime(name: str, batch: int | str, tmp_path: Any) -> None:
    make, channels = BLOCKS[name]
    layers = Layers()
    y = make(layers)
    nodes = [*layers.nodes, node("Identity", [y], ["y"])]
    proto = model(nodes, [f"x: f32[{batch}, {channels}, 11, 9]"], ["y: f32[]"], layers.tensors)
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    x = DRAW.normal(size=(2, channels, 11, 9)).astype(np.float32)
    (expected,) = runtime.InferenceSession(str(tmp_path / "model.onnx")).run(None, {"x": x})
    compiled = rlx.load(tmp_path / "model.onnx").compile(target="cpu")
    np.testing.assert_array_equal(np.asarray(compiled(x)), expected)
    assert not [entry for entry in compiled.report.conversions if entry.reason is not None]
    kernels = [step.kernel for step in compiled.executable.lir.steps]
    assert kernels.count("native_integer_folded_matmul") == {"residual": 3, "separable": 2, "stem": 1}[name]


@pytest.mark.parametrize("of", [np.uint8, np.int8])
@pytest.mark.parametrize("groups", [1, 2])
def test_qlinear_conv_and_conv_integer_are_exact(of: Any, groups: int, tmp_path: Any) -> None:
    info = np.iinfo(of)
    x = DRAW.integers(info.min, info.max + 1, (2, 6, 9, 8)).astype(of)
    w = DRAW.integers(-31, 32, (8, 6 // groups, 3, 3)).astype(np.int8)
    tensors = {
        "w": w, "xs": np.float32(0.02), "xz": of(7), "ws": DRAW.uniform(0.002, 0.004, 8).astype(np.float32),
        "wz": np.zeros(8, np.int8), "ys": np.float32(0.05), "yz": of(5), "b": DRAW.integers(-999, 999, 8).astype(np.int32),
        "wz1": np.int8(0),
    }  # fmt: skip
    attributes = {"pads": [1, 1, 1, 1], "strides": [2, 1], "group": groups}
    nodes = [
        node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], **attributes),
        node("ConvInteger", ["x", "w", "xz", "wz1"], ["z"], **attributes),
    ]
    kind = {np.uint8: "u8", np.int8: "i8"}[of]
    proto = model(nodes, [f"x: {kind}[2, 6, 9, 8]"], [f"y: {kind}[2, 8, 5, 8]", "z: i32[2, 8, 5, 8]"], tensors)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    results = rlx.load(tmp_path / "model.onnx").compile(target="cpu")(x)
    padded = np.pad(x.astype(np.int32) - 7, ((0, 0), (0, 0), (1, 1), (1, 1)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2]
    parts = [
        np.einsum("nchwij,mcij->nmhw", v, k.astype(np.int32))
        for v, k in zip(np.split(view, groups, 1), np.split(w, groups), strict=True)
    ]
    sums = np.concatenate(parts, 1)
    np.testing.assert_array_equal(np.asarray(results["z"]), sums)
    scale = tensors["xs"] * tensors["ws"] / tensors["ys"]
    rounded = np.rint((sums + tensors["b"].reshape(8, 1, 1)).astype(np.float32) * scale.reshape(8, 1, 1)) + 5
    np.testing.assert_array_equal(np.asarray(results["y"]), np.clip(rounded, info.min, info.max).astype(of))
