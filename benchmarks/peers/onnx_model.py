"""Cases as ONNX models: MiniLM exported from the PyTorch module, small programs written node by node."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from benchmarks.case import Data
from benchmarks.peers import onnx_vision
from benchmarks.peers.onnx_vision import serialized


def model_of(kind: str, data: Data) -> tuple[bytes, Mapping[str, np.ndarray]] | None:
    """The model's bytes and its inputs, or `None` where a case has no ONNX form."""
    if kind == "onnx":
        return data["model"], data["feeds"]
    if kind == "minilm":
        return minilm(data)
    if kind == "vision":
        return onnx_vision.model(data), {"x": data["x"]}
    if kind == "call":
        return call(data), {"x": data["x"]}
    if kind == "chain":
        return chain(data), {n: data[n] for n in "abc"}
    if kind == "gemm":
        return gemm(data), {"x": data["x"]}
    return None


def minilm(data: Data) -> tuple[bytes, Mapping[str, np.ndarray]]:
    import torch  # only this model needs it

    from benchmarks.peers.pytorch import SentenceEncoder

    encoder = SentenceEncoder(data["weights"], data["config"]).eval()
    inputs = torch.from_numpy(data["ids"]), torch.from_numpy(data["mask"])
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of packages that this model does not need
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        exported: Any = torch.onnx.export(encoder, inputs, dynamo=True, input_names=["ids", "mask"], verbose=False)
    buffer = io.BytesIO()
    exported.save(buffer)
    return buffer.getvalue(), {"ids": data["ids"], "mask": data["mask"]}


def call(data: Data) -> bytes:
    nodes, constants, value = [], [], "x"
    for i, (w, b) in enumerate(zip(data["weights"], data["biases"], strict=True)):
        constants += [numpy_helper.from_array(w, f"w{i}"), numpy_helper.from_array(b, f"b{i}")]
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"product{i}"]))
        nodes.append(helper.make_node("Add", [f"product{i}", f"b{i}"], [f"sum{i}"]))
        nodes.append(helper.make_node("Tanh", [f"sum{i}"], [f"y{i}"]))
        value = f"y{i}"
    return serialized(nodes, {"x": data["x"]}, data["x"].shape, constants)


def chain(data: Data) -> bytes:
    rows = [
        ("Mul", ["a", "b"], "ab"), ("Add", ["ab", "c"], "abc"), ("Tanh", ["abc"], "t"), ("Neg", ["a"], "minus"),
        ("Exp", ["minus"], "e"), ("Mul", ["t", "e"], "left"), ("Sqrt", ["b"], "s"), ("Add", ["c", "offset"], "d"),
        ("Div", ["s", "d"], "right"), ("Add", ["left", "right"], "y"),
    ]  # fmt: skip
    nodes = [helper.make_node(op, operands, [result]) for op, operands, result in rows]
    offset = numpy_helper.from_array(np.float32(1.5), "offset")
    return serialized(nodes, {n: data[n] for n in "abc"}, data["a"].shape, [offset])


def gemm(data: Data) -> bytes:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    shape = (data["x"].shape[0], data["w"].shape[1])
    return serialized([node], {"x": data["x"]}, shape, [numpy_helper.from_array(data["w"], "w")])
