"""Verification of a model's structure, before it is processed, and of nodes against the schemas of their operations: ONNX's
converter does not check these, and ends the process at an attribute of another kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from onnx import AttributeProto, TensorProto, defs

from rlx_core.errors import CycleError, Fact, FormatError
from rlx_core.system.budget import current_work
from rlx_onnx.reading.tensors import check_tensor


def node_words(node: Any) -> str:
    """A node as errors call it: by its name, or by its first result."""
    return f"node {node.name or next(iter(node.output), '')}".rstrip()


def node_label(node: Any) -> str:
    """A node with its operation, as errors call it."""
    return f"{node_words(node)} ({node.op_type})"


def nested_graphs(node: Any) -> Iterator[Any]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def each_graph(graph: Any) -> Iterator[Any]:
    """A graph and all that are nested in it."""
    yield graph
    for node in graph.node:
        for nested in nested_graphs(node):
            yield from each_graph(nested)


def check_structure(model: Any) -> None:
    """Require that names are made once and before they are used, and that functions do not call themselves.

    Raises:
        FormatError, CycleError: They are not; the message has the name and the node.
    """
    _check_texts(model)
    if not model.HasField("graph") or not model.opset_import:
        raise FormatError("it is no ONNX model: it has no graph, or no set of operations")
    for domain, version in ((each.domain, each.version) for each in model.opset_import):
        if not 1 <= version < 2**31:
            raise FormatError(f"there is no version {version} of the operations of {domain or 'ai.onnx'}")
    _check_graph(model.graph, frozenset())
    for function in model.functions:
        _check_nodes(function.node, set(function.input), f"function {function.name}")
    _check_calls(model)


def _check_texts(message: Any) -> None:
    """Require that texts are UTF-8: protobuf hands out bytes where they are not."""
    fields = message.ListFields() if not isinstance(message, TensorProto) else _beside_elements(message)
    for field, value in fields:
        if field.type == field.TYPE_STRING:
            for each in value if not isinstance(value, str | bytes) else (value,):
                if isinstance(each, bytes):
                    raise FormatError(f"a {field.name} is no text: {each[:32]!r}")
        elif field.type == field.TYPE_MESSAGE:
            for each in value if field.is_repeated else (value,):
                _check_texts(each)


def _beside_elements(tensor: Any) -> Iterator[tuple[Any, Any]]:
    """The fields of a tensor that hold texts: asking for all of them copies its elements."""
    for name in ("name", "doc_string", "external_data", "metadata_props"):
        yield tensor.DESCRIPTOR.fields_by_name[name], getattr(tensor, name)


def _check_graph(graph: Any, around: frozenset[str]) -> None:
    where = f"graph {graph.name}"
    created: set[str] = set()
    for tensor in graph.initializer:
        check_tensor(tensor, f"tensor {tensor.name}")
    for each in graph.input:
        _make(each.name, created, where)
    initial = [each.name for each in graph.initializer] + [each.values.name for each in graph.sparse_initializer]
    tensors: set[str] = set()
    for name in initial:
        _make(name, tensors, where)
    created |= tensors  # a tensor may have the name of an input, whose default it is
    known = _check_nodes(graph.node, created, where, around)
    for each in graph.output:
        if each.name not in known and each.name not in around:
            raise FormatError(f"{where}: nothing makes its result {each.name!r}")


def _check_nodes(
    nodes: Iterable[Any], defined: set[str], where: str, around: frozenset[str] = frozenset()
) -> frozenset[str]:
    following = {name for node in nodes for name in node.output}
    for node in nodes:
        for name in node.input:
            if name and name not in defined and name not in around:
                fault = (
                    "only made later: nodes must be in order, without a cycle" if name in following else "made nowhere"
                )
                raise FormatError(
                    f"{where}: {name!r} is {fault}", Fact("used by", f"{node_words(node)} ({node.op_type})")
                )
        for attribute in node.attribute:
            for tensor in (attribute.t, *attribute.tensors):
                if attribute.type in (AttributeProto.TENSOR, AttributeProto.TENSORS):
                    check_tensor(tensor, f"{node_words(node)}: {attribute.name}")
        for nested in nested_graphs(node):
            _check_graph(nested, around | frozenset(defined))
        for name in node.output:
            if name:
                _make(name, defined, where)
    return frozenset(defined)


def _make(name: str, defined: set[str], where: str) -> None:
    if not name or name in defined:
        raise FormatError(f"{where}: {name!r} is made twice" if name else f"{where}: a value has no name")
    defined.add(name)


def _check_calls(model: Any) -> None:
    """Require that functions call no circle, and come to no more nodes than the budget allows."""
    bodies = {(each.domain, each.name): list(_all_nodes(each.node)) for each in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(key: tuple[str, str], way: tuple[tuple[str, str], ...]) -> int:
        if key in way:
            raise CycleError(f"functions call one another in a circle: {' → '.join(name for _, name in (*way, key))}")
        if key not in sizes:
            calls = [(n.domain, n.op_type) for n in bodies[key]]
            sizes[key] = sum(size(call, (*way, key)) if call in bodies else 1 for call in calls)
        return sizes[key]

    calls = [(n.domain, n.op_type) for n in _all_nodes(model.graph.node)]
    if len(bodies) > 500:  # the way through them would be deeper than Python goes
        raise FormatError(f"a model of {len(bodies)} functions")
    total = sum(size(call, ()) if call in bodies else 1 for call in calls)
    work = current_work()
    if work is not None:
        work.expect_nodes(total, "the model with its functions in place")


def _all_nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        yield node
        for nested in nested_graphs(node):
            yield from _all_nodes(nested.node)


# ---------------------------------------------------------------------------- signatures of operations


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
