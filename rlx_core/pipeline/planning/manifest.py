"""The inputs and outputs of a program, as its caller sees them, and the buffers that the caller donates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rlx_core.errors import ConfigError, UnknownNameError, nearest
from rlx_core.ir.graph import Graph, Value, leaf_name
from rlx_core.ir.lir import CallManifest, Entry


def donated_leaves(graph: Graph, named: Mapping[str, int | None]) -> dict[Value, int | None]:
    """Donated inputs and params, each with the index of the output that is its next value, or `None`.

    Raises:
        UnknownNameError, ConfigError: A name is no leaf, or the output does not exist, has another type, or replaces two.
    """
    leaves = {leaf_name(v): v for v in (*graph.inputs, *graph.params)}
    donated: dict[Value, int | None] = {}
    replaced: dict[int, str] = {}
    for name, index in named.items():
        if name not in leaves:
            raise UnknownNameError(f"donation: {graph.name} has no input or param {name!r}", hint=nearest(name, leaves))
        if index is not None:
            _check_replacement(graph, name, leaves[name], index, replaced)
            replaced[index] = name
        donated[leaves[name]] = index
    return donated


def _check_replacement(graph: Graph, name: str, leaf: Value, index: int, replaced: Mapping[int, str]) -> None:
    if not 0 <= index < len(graph.outputs):
        raise ConfigError(f"donation: {name} is replaced by output {index}, but there are {len(graph.outputs)} outputs")
    if graph.outputs[index].type != leaf.type:
        raise ConfigError(
            f"donation: {name} is {leaf.type}, but output {index} that replaces it is {graph.outputs[index].type}"
        )
    if index in replaced:
        raise ConfigError(f"donation: output {index} replaces both {replaced[index]} and {name}")


def make_manifest(
    graph: Graph, output_names: Sequence[str] | None, donated: Mapping[str, object], prepare: Graph | None
) -> CallManifest:
    """The manifest of `graph`, with the params that the caller binds: those of `prepare` if there is one.

    Raises:
        ConfigError: There are more or fewer names than outputs.
    """
    names = [f"out{i}" for i in range(len(graph.outputs))] if output_names is None else list(output_names)
    if len(names) != len(graph.outputs):
        raise ConfigError(f"manifest: {len(names)} output names for {len(graph.outputs)} outputs")

    def entries(leaves: Iterable[Value]) -> tuple[Entry, ...]:
        return tuple(Entry(leaf_name(v), v.type, v, leaf_name(v) in donated) for v in leaves)

    outputs = tuple(Entry(name, v.type, v) for name, v in zip(names, graph.outputs, strict=True))
    return CallManifest(entries(graph.inputs), entries((prepare or graph).params), outputs)
