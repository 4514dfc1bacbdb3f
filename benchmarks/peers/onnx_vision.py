"""The networks of `benchmarks.networks` as ONNX models, written node by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from benchmarks.case import Data
from benchmarks.cases.vision import EPS
from benchmarks.networks import NETWORKS


class Layers:
    """Layers on names of tensors, each a node more."""

    def __init__(self, params: Mapping[str, np.ndarray]) -> None:
        self.params = params
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def node(self, op: str, operands: list[str], **attributes: Any) -> str:
        result = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, operands, [result], **attributes))
        return result

    def given(self, name: str, *parts: str) -> list[str]:
        names = [f"{name}.{part}" for part in parts]
        self.constants |= {n: self.params[n] for n in names}
        return names

    def conv(self, x: str, name: str, *, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
        steps = {"strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups, "kernel_shape": [kernel] * 2}
        y = self.node("Conv", [x, *self.given(name, "w")], **steps)
        norm = self.given(name, "gamma", "beta", "mean", "var")
        return self.node("BatchNormalization", [y, *norm], epsilon=EPS)

    def relu(self, x: str, limit: float | None = None) -> str:
        if limit is None:
            return self.node("Relu", [x])
        self.constants |= {"least": np.float32(0), "most": np.float32(limit)}
        return self.node("Clip", [x, "least", "most"])

    def max_pool(self, x: str) -> str:
        return self.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)

    def add(self, x: str, y: str) -> str:
        return self.node("Add", [x, y])

    def mean(self, x: str) -> str:
        return self.node("Flatten", [self.node("GlobalAveragePool", [x])])

    def linear(self, x: str, name: str, *, features: int) -> str:
        return self.node("Gemm", [x, *self.given(name, "w", "b")])


def model(data: Data) -> bytes:
    """The network of a case with its weights, as the bytes of a file."""
    layers, x = Layers(data["params"]), data["x"]
    NETWORKS[data["network"]](layers, "x")
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in layers.constants.items()]
    return serialized(layers.nodes, {"x": x}, (len(x), 1000), constants)


def serialized(
    nodes: list[Any], inputs: Mapping[str, np.ndarray], output: tuple[int, ...], constants: list[Any]
) -> bytes:
    """The bytes of a model; the output of its last node, of this shape, is its own."""
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(a.shape)) for n, a in inputs.items()]
    result = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, list(output))
    graph = helper.make_graph(nodes, "case", infos, [result], constants)
    content: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    ).SerializeToString()
    return content
