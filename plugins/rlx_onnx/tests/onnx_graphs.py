"""Small models, written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

TYPES = {
    "f32": TensorProto.FLOAT,
    "i32": TensorProto.INT32,
    "i64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
    "i8": TensorProto.INT8,
    "u8": TensorProto.UINT8,
}


def value(text: str) -> Any:
    """`x: f32[n, 3]` as a `ValueInfoProto`."""
    name, kind = (part.strip() for part in text.split(":"))
    dtype, _, dims = kind.rstrip("]").partition("[")
    sizes = [
        int(each) if each.strip().lstrip("-").isdigit() else each.strip() for each in dims.split(",") if each.strip()
    ]
    return helper.make_tensor_value_info(name, TYPES[dtype], sizes)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[str],
    outputs: Sequence[str],
    tensors: Mapping[str, Any] | None = None,
    *,
    opset: int = 21,
    domains: Mapping[str, int] | None = None,
    functions: Sequence[Any] = (),
) -> ModelProto:
    """A model of nodes (`helper.make_node`), inputs and outputs as `value` reads them, and tensors by name."""
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (tensors or {}).items()]
    graph = helper.make_graph(
        list(nodes), "test", [value(x) for x in inputs], [value(x) for x in outputs], initializers
    )
    sets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in (domains or {}).items())]
    return helper.make_model(graph, opset_imports=sets, functions=list(functions), ir_version=10)


node = helper.make_node
