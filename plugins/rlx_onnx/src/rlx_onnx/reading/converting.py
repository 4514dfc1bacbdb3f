"""One form of every model: functions in their places, and all operations of the newest version that this package knows.

The order matters. The converter drops a model's own functions without a word, so they are put in place first; and a function
that ONNX itself gives for an operation may use older ones, so those come last.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import defs, inliner, version_converter
from onnx.defs import onnx_opset_version

from rlx_core.errors import Fact, FormatError, UnsupportedError, unsupported
from rlx_onnx.reading.structure import each_graph, node_words
from rlx_onnx.reading.weights import taken_weights
from rlx_onnx.walking.table import TABLE, operation_name

NEWEST: Final = min(28, onnx_opset_version())
"""The version of ai.onnx whose meaning the handlers have."""

IR_OF_FREE_TENSORS: Final = 4
"""The version of the file format from which on a graph's tensors need not be among its inputs."""

CONTRIBUTED: Final = "com.microsoft"

FAULTS: Final = (
    *(version_converter.ConvertError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError),
    *(onnx.defs.SchemaError, DecodeError, RuntimeError, ValueError, TypeError, LookupError, MemoryError),
)
"""Errors that ONNX's code raises for models that it cannot read."""


def version_of(model: Any, domain: str = "") -> int | None:
    """The version of a set of operations that a model uses."""
    names = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
    return next((each.version for each in model.opset_import if each.domain in names), None)


def converted(model: Any) -> tuple[Any, list[str], dict[str, np.ndarray]]:
    """The model in that form, what was done to it, in words, and the bytes of its large tensors, which were taken out of it.

    Args:
        model: A checked `ModelProto`, which is changed.

    Raises:
        FormatError: The converter cannot read it.
    """
    done: list[str] = []
    _moved(model)
    retained = taken_weights(model.graph)
    try:
        if model.functions:
            done.append(f"{len(model.functions)} functions of the model put in place")
            model = inliner.inline_local_functions(model)
        version = version_of(model)
        scans = [node for graph in each_graph(model.graph) for node in graph.node if node.op_type == "Scan"]
        if version == 8 and scans:  # the converter leaves it as it is, which means something else today
            raise unsupported("", {"Scan of version 8": [node_words(node) for node in scans]})
        if version is not None and version < NEWEST:
            model = _with_new_versions(model)
            done.append(f"operations of version {version} brought to {NEWEST}")
        model = _schema_functions(model, done)
    except UnsupportedError:
        raise
    except FAULTS as error:
        message = str(error).strip().splitlines()
        raise FormatError(
            "ONNX's converter cannot read it", Fact("it said", message[0] if message else error)
        ) from error
    return model, done, retained


def _moved(model: Any) -> None:
    """Contributed operations that were written into ONNX's own domain, in theirs: the converter refuses them else."""
    result = False
    for graph in each_graph(model.graph):
        for node in graph.node:
            if node.domain == "" and operation_name(CONTRIBUTED, node.op_type) in TABLE and not defs.has(node.op_type):
                node.domain, result = CONTRIBUTED, True
    if result and version_of(model, CONTRIBUTED) is None:
        model.opset_import.add(domain=CONTRIBUTED, version=1)


def _with_new_versions(model: Any) -> Any:
    """The model with operations of the newest version.

    Sizes are kept from the converter, which computes with them in C++ and ends the process where one becomes negative: it needs
    to know how many axes there are, and no more.
    """
    declared = [[_copied(each) for each in part] for part in (model.graph.input, model.graph.output)]
    for graph in each_graph(model.graph):
        del graph.value_info[:]
        for each in (*graph.input, *graph.output):
            for dim in each.type.tensor_type.shape.dim if each.type.HasField("tensor_type") else ():
                dim.dim_param = "n"
    if model.ir_version < IR_OF_FREE_TENSORS:
        model.ir_version = (
            IR_OF_FREE_TENSORS  # some files of older formats have tensors that are no inputs, as onnxruntime allows
        )
    model = version_converter.convert_version(model, NEWEST)
    for part, retained in zip((model.graph.input, model.graph.output), declared, strict=True):
        del part[:]
        part.extend(retained)
    return model


def _copied(message: Any) -> Any:
    result = type(message)()
    result.CopyFrom(message)
    return result


def _schema_functions(model: Any, done: list[str]) -> Any:
    """Operations without a handler, for which ONNX gives a function, as that function."""
    used = {(node.domain, node.op_type) for graph in each_graph(model.graph) for node in graph.node}
    missing = [each for each in sorted(used) if operation_name(*each) not in TABLE and _has_function(*each)]
    if not missing:
        return model
    keep = [each for each in used if each not in missing]
    try:
        inlined = inliner.inline_selected_functions(model, keep, exclude=True, inline_schema_functions=True)
    except (RuntimeError, AssertionError):  # it cannot type an operand that is left out; the operation is then missing
        return model
    done.append(f"ONNX's own functions for {', '.join(op for _, op in missing)} put in place")
    return inlined


def _has_function(domain: str, op: str) -> bool:
    try:
        schema = onnx.defs.get_schema(op, domain="" if domain == "ai.onnx" else domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
