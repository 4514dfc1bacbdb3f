"""Forward mode, graph to graph: a program together with its derivative along named directions."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.ir.graph import Builder, Graph, Value
from rlx_core.ir.module import expect_graph
from rlx_core.transforms.engine import STANDARD, SWEEPS, Engine, rule_for
from rlx_core.transforms.graphs import differentiable, fresh_name, live_nodes, pruned, zeros
from rlx_core.transforms.prepare import copy_prepared
from rlx_core.transforms.sweeps import pushforward


def jvp_graph(graph: Graph, names: Sequence[str | Value], *, engine: Engine = STANDARD) -> Graph:
    """Return the program with the extra inputs `tangent_<name>`: outputs [primals.., tangents..], one tangent per output.

    The tangent of an integer or bool output is zeros of its own type.

    Raises:
        UnknownNameError: `graph` has no such value.
        DtypeError: One of them is an integer or a bool.
        MissingRuleError: An op on the path has no rule and none can be derived.
    """
    return jvp_with_values(graph, names, engine=engine)[0]


def jvp_with_values(
    graph: Graph, names: Sequence[str | Value], *, engine: Engine = STANDARD
) -> tuple[Graph, dict[Value, Value]]:
    """Return the result of `jvp_graph` and the map from values of `graph` to values of the new graph."""
    expect_graph("jvp", graph)
    sources = [differentiable(graph, name, "jvp", "tangent") for name in names]
    builder = Builder(f"{graph.name}_jvp")
    values = copy_prepared(builder, graph, "jvp", sources, engine=engine)
    nodes = list(builder.nodes)
    taken = {*graph.names}
    seeds: dict[Value, Value] = {}
    for handle, source in zip(names, sources, strict=True):
        name = fresh_name(taken, f"tangent_{handle if isinstance(handle, str) else _label(handle)}")
        taken.add(name)
        tangent = builder.input(name, source.type)
        new = values[source]
        if new in seeds:
            with rule_for(engine, builder, new.node, "jvp"):
                tangent = seeds[new] + tangent
        seeds[new] = tangent
    outputs = [values[v] for v in graph.outputs]
    reached = pushforward(builder, live_nodes(nodes, outputs), seeds, engine=engine)
    tangents = [reached[v] if v in reached else zeros(builder, v.type) for v in outputs]
    return builder.finish([*outputs, *tangents]), values


def _label(value: Value) -> str:
    return repr(value).lstrip("%").replace(".", "_")


def tangents_of(body: Graph, wrt: Sequence[str], *, engine: Engine = STANDARD) -> Graph:
    """Return a nested graph's JVP: inputs and tangents of `wrt` in, tangents of the differentiable outputs out."""
    both = jvp_graph(body, wrt, engine=engine)
    tangents = both.outputs[len(body.outputs) :]
    return pruned(both, [t for t in tangents if t.dtype.is_differentiable])


SWEEPS["jvp"] = tangents_of
