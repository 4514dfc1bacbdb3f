"""Verification of nodes against the schemas of their operations: numbers of operands, names and kinds of attributes.

ONNX's converter does not check them: an attribute of another kind ends the process there.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from onnx import AttributeProto, defs

from rlx_core.errors import FormatError
from rlx_onnx.reading.structure import each_graph, node_label

__all__ = ["check_signatures"]


def check_signatures(model: Any) -> None:
    """Require that every node fits its operation's signature; operations that ONNX does not know are left to others.

    Raises:
        FormatError: A node does not.
    """
    versions = {_domain(each.domain): each.version for each in model.opset_import}
    for graph in each_graph(model.graph):
        for node in graph.node:
            _check(node, versions)
    for function in model.functions:
        function_versions = versions | {_domain(each.domain): each.version for each in function.opset_import}
        for node in function.node:
            _check(node, function_versions)
            for inner in (each.g for each in node.attribute if each.type == AttributeProto.GRAPH):
                for graph in each_graph(inner):
                    for nested in graph.node:
                        _check(nested, function_versions)


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _check(node: Any, versions: dict[str, int]) -> None:
    domain = _domain(node.domain)
    where = node_label(node)
    if domain not in versions:
        raise FormatError(f"{where}: the model names no version of {domain or 'ai.onnx'}")
    schema = _schema(node.op_type, versions[domain], domain)
    if schema is None:
        return
    if not schema.min_input <= len(node.input) <= schema.max_input:
        raise FormatError(f"{where}: it takes {schema.min_input} to {schema.max_input} operands, not {len(node.input)}")
    if not schema.min_output <= len(node.output) <= schema.max_output:
        raise FormatError(f"{where}: it has {schema.min_output} to {schema.max_output} results, not {len(node.output)}")
    known, seen = schema.attributes, set()
    for attribute in node.attribute:
        name = attribute.name
        if name in seen or name not in known:
            raise FormatError(f"{where}: its attribute {name!r} is {'there twice' if name in seen else 'not known'}")
        seen.add(name)
        kind = int(known[name].type.value) if hasattr(known[name].type, "value") else int(known[name].type)
        if attribute.type != kind:
            words = AttributeProto.AttributeType.Name
            result = (
                words(attribute.type) if attribute.type in AttributeProto.AttributeType.values() else attribute.type
            )
            raise FormatError(f"{where}: its attribute {name} is {words(kind)}, not {result}")
        if not attribute.ref_attr_name and not _is_whole(attribute):
            raise FormatError(f"{where}: its attribute {name} has no value of its kind")
    for name, each in known.items():
        if each.required and name not in seen:
            raise FormatError(f"{where}: its attribute {name} is missing")


_FIELDS = {
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.TYPE_PROTO: "tp",
}


def _is_whole(attribute: Any) -> bool:
    """Return whether the field of an attribute's kind is set; omitted numbers and texts are 0 and empty."""
    return attribute.type not in _FIELDS or bool(attribute.HasField(_FIELDS[attribute.type]))


@cache
def _schema(op: str, version: int, domain: str) -> Any:
    try:
        return defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None
