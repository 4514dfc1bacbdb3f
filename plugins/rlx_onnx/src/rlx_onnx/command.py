"""`rlx onnx FILE`: the contents of a model, and which of its operations rlx supports; the model is not run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rlx_core.cli.session import CliSession
from rlx_core.cli.tables import cell, facts, heading, listing
from rlx_core.errors import RlxError
from rlx_core.pipeline.set_up import working_on
from rlx_core.system.records import frozen
from rlx_onnx.reading.converting import converted
from rlx_onnx.reading.external import Neighbours
from rlx_onnx.reading.model import read_proto
from rlx_onnx.reading.structure import check_signatures, check_structure, each_graph, node_words
from rlx_onnx.reading.tensors import BITS, element_name, numpy_dtype
from rlx_onnx.walking.table import TABLE, operation_name


@frozen
class Inventory:
    """The contents of a model.

    Attributes:
        about: Label → words: its writer, versions, sizes.
        inputs, results: Name and type of each.
        done: Transformations of the model before it is walked, in words.
        used: Operation → number of nodes that use it, after the transformations.
        missing: Operation → the nodes that use it, for those without a handler.
        host: Nodes that run on the host, between two programs, unless their operands are known.
    """

    about: dict[str, str]
    inputs: list[tuple[str, str]]
    results: list[tuple[str, str]]
    done: list[str]
    used: dict[str, int]
    missing: dict[str, list[str]]
    host: list[str]


def command(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An ONNX model.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the contents of an ONNX model: inputs, sizes, operations, and operations that rlx does not support."""
    CliSession.of(ctx).answer(lambda: inventory(file), as_dictionary if as_json else None, layout)


def inventory(file: Path) -> Inventory:
    """Return the contents of a model, without reading its tensors.

    Raises:
        FileError, FormatError, CycleError: The model cannot be read, or is invalid.
    """
    with working_on(f"reading {file.name}"):
        return _inventory(*read_proto(file))


def _inventory(proto: Any, weights: Mapping[str, Any], folder: Path | None, name: str) -> Inventory:
    try:
        check_structure(proto)
        check_signatures(proto)
        about = _about(proto, folder, weights)
        graph = proto.graph
        initial = {each.name for each in graph.initializer}
        inputs = [(each.name, _type(each)) for each in graph.input if each.name not in initial]
        results = [(each.name, _type(each)) for each in graph.output]
        proto, done, _ = converted(proto)
    except RlxError as error:
        raise error.about(name) from error.__cause__
    used: Counter[str] = Counter()
    missing: dict[str, list[str]] = {}
    host: list[str] = []
    for inner in each_graph(proto.graph):
        for node in inner.node:
            op = operation_name(node.domain, node.op_type)
            used[op] += 1
            handler = TABLE.get(op)
            if handler is None:
                missing.setdefault(op, []).append(node_words(node))
            elif handler.finds_sizes:
                host.append(f"{node_words(node)} ({op})")
    return Inventory(about, inputs, results, done, dict(used.most_common()), missing, host)


def _about(proto: Any, folder: Path | None, weights: Mapping[str, Any]) -> dict[str, str]:
    nodes = sum(len(each.node) for each in each_graph(proto.graph))
    sizes = [math.prod(each.dims) for each in proto.graph.initializer]
    outside = [each for each in proto.graph.initializer if each.external_data and each.name not in weights]
    if folder is not None:
        neighbours = Neighbours(folder)
        for each in outside:
            neighbours.bytes_of(each)  # mapped, so that missing data are reported here
    return {
        "written by": f"{proto.producer_name} {proto.producer_version}".strip(),
        "versions": ", ".join(f"{each.domain or 'ai.onnx'} {each.version}" for each in proto.opset_import),
        "nodes": f"{nodes:,}",
        "tensors": f"{len(sizes):,} of {sum(sizes):,} elements, {sum(map(_nbytes, proto.graph.initializer)):,} bytes",
        "outside": f"{len(outside):,} tensors in other files" if outside else "",
        "functions": f"{len(proto.functions):,}" if proto.functions else "",
    }


def _nbytes(tensor: Any) -> int:
    bits = BITS.get(tensor.data_type) or 8 * numpy_dtype(tensor.data_type).itemsize
    return math.prod(tensor.dims) * bits // 8


def _type(value: Any) -> str:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return (kind or "unknown").removesuffix("_type")
    tensor = value.type.tensor_type
    dims = [str(each.dim_value) if each.HasField("dim_value") else each.dim_param or "?" for each in tensor.shape.dim]
    shape = f"[{', '.join(dims)}]" if tensor.HasField("shape") else "[…]"
    return f"{element_name(tensor.elem_type).lower()}{shape}"


def layout(result: Inventory) -> Iterator[Any]:
    """The tables of it."""
    yield facts(result.about.items(), indent=0)
    yield cell("")
    rows = [("input", *each) for each in result.inputs] + [("result", *each) for each in result.results]
    yield listing(("", "name", "type"), rows, unwrapped_columns=2)
    if result.done:
        yield cell("")
        yield facts([("before it is walked", "; ".join(result.done))], indent=0)
    yield cell("")
    state = dict.fromkeys(result.missing, "missing")
    yield listing(
        ("operation", "nodes>", ""), [(op, f"{n:,}", cell(state.get(op, ""), "red")) for op, n in result.used.items()]
    )
    if result.host:
        yield cell("")
        yield facts(
            [("on the host, between two programs, unless what it takes is known", ", ".join(result.host))], indent=0
        )
    if result.missing:
        yield cell("")
        yield heading(
            f"{len(result.missing)} of {len(result.used)} operations are missing: rlx.load refuses this model"
        )
        yield listing(
            ("operation", "used by", "instead"),
            [(op, ", ".join(nodes), TABLE.alternatives.get(op, "")) for op, nodes in result.missing.items()],
        )
    else:
        yield cell("")
        yield cell(f"all of its {len(result.used)} operations are there")


def as_dictionary(result: Inventory) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "about": {label: words for label, words in result.about.items() if words},
        "inputs": dict(result.inputs),
        "results": dict(result.results),
        "done": result.done,
        "operations": result.used,
        "missing": result.missing,
        "host": result.host,
    }
