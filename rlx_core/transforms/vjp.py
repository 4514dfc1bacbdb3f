"""Reverse mode, graph to graph: forward and backward in one program, cotangents by name in and out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from rlx_core.errors import DtypeError, Fact, RlxError, ShapeError
from rlx_core.ir.graph import Builder, Graph, Node, Value
from rlx_core.ir.module import expect_graph
from rlx_core.transforms.engine import STANDARD, SWEEPS, Engine, rule_for
from rlx_core.transforms.graphs import differentiable, find_value, fresh_name, live_nodes, ones, pruned, zeros
from rlx_core.transforms.prepare import copy_prepared
from rlx_core.transforms.sweeps import backward

Seed = Literal["input", "one"]
"""The source of the cotangent of an output: an extra input `d_output`, or the constant 1."""


def vjp_graph(
    graph: Graph,
    wrt: Sequence[str | Value],
    *,
    outputs: Sequence[int] | None = None,
    seed: Seed = "input",
    allow_unreached: bool = True,
    engine: Engine = STANDARD,
) -> Graph:
    """Return forward and backward in one graph: outputs [outputs.., cotangents in `wrt` order].

    Each differentiated output gets an input for its cotangent: `d_output` if it is the only one, else `d_output_k` for the
    output at position `k`. A number is appended to names that are taken. Integer and bool outputs have no cotangent.

    Args:
        graph: The program, HIR or MIR.
        wrt: Names or values; any differentiable value, inputs, params and intermediate ones alike.
        outputs: The positions of the outputs to differentiate; `None` means all. The others are passed through.
        seed: `"one"` puts the constant 1 in place of the extra inputs.
        allow_unreached: Whether a value that no output depends on has a cotangent of zeros, or is an error.
        engine: The source of rules.

    Raises:
        UnknownNameError: `graph` has no such value.
        DtypeError: A value of `wrt`, or every output, is an integer or a bool.
        ShapeError: A value of `wrt` is not reached and `allow_unreached` is false.
        MissingRuleError: An op on the path has no rule and none can be derived.
    """
    return vjp_with_values(graph, wrt, outputs=outputs, seed=seed, allow_unreached=allow_unreached, engine=engine)[0]


def vjp_with_values(
    graph: Graph,
    wrt: Sequence[str | Value],
    *,
    outputs: Sequence[int] | None = None,
    seed: Seed = "input",
    allow_unreached: bool = True,
    engine: Engine = STANDARD,
) -> tuple[Graph, dict[Value, Value]]:
    """Return the result of `vjp_graph` and the map from values of `graph` to values of the new graph."""
    expect_graph("vjp", graph)
    targets = [differentiable(graph, w, "grad", "gradient") for w in wrt]
    names = _cotangent_names(graph, outputs)
    builder = Builder(f"{graph.name}_vjp")
    values = copy_prepared(builder, graph, "vjp", targets, engine=engine)
    nodes = list(builder.nodes)
    seeds: dict[Value, Value] = {}
    for name, output in names:
        cotangent = builder.input(name, output.type) if seed == "input" else ones(builder, output.type)
        new = values[output]
        seeds[new] = _added(builder, new.node, seeds[new], cotangent) if new in seeds else cotangent
    target_values = [values[t] for t in targets]
    reached = backward(builder, live_nodes(nodes, seeds), seeds, wrt=target_values, engine=engine)
    for target, value in zip(wrt, target_values, strict=True):
        if value not in reached and not allow_unreached:
            raise _unreached(graph, target)
    cotangents = [reached[v] if v in reached else zeros(builder, v.type) for v in target_values]
    return builder.finish([*(values[v] for v in graph.outputs), *cotangents]), values


def _added(builder: Builder, node: Node, a: Value, b: Value) -> Any:
    with rule_for(STANDARD, builder, node, "vjp"):
        return a + b


def _cotangent_names(graph: Graph, outputs: Sequence[int] | None) -> list[tuple[str, Value]]:
    positions = range(len(graph.outputs)) if outputs is None else outputs
    chosen = [(k, graph.outputs[k]) for k in positions]
    if not any(v.dtype.is_differentiable for _, v in chosen):
        listed = ", ".join(str(v.type) for _, v in chosen) or "none"
        raise DtypeError(f"grad: {graph.name} has no output with a derivative (outputs: {listed})")
    taken = {*graph.names}
    result = []
    for k, output in chosen:
        if output.dtype.is_differentiable:
            name = fresh_name(taken, "d_output" if len(chosen) == 1 else f"d_output_{k}")
            taken.add(name)
            result.append((name, output))
    return result


def _unreached(graph: Graph, handle: str | Value) -> RlxError:
    value = find_value(graph, handle)
    name = handle if isinstance(handle, str) else repr(handle)
    return ShapeError(
        f"grad: no output of {graph.name} depends on {name}",
        Fact(name, value.type, value.node.origin.source),
        hint="leave out allow_unreached=False to get zeros for it",
    )


def grad_with_loss(
    graph: Graph,
    wrt: Sequence[str | Value],
    *,
    aux: int = 0,
    seed: Seed = "input",
    allow_unreached: bool = True,
    engine: Engine = STANDARD,
) -> Graph:
    """Return the loss and its gradients: outputs [loss, aux.., gradients in `wrt` order], with the extra input `d_output`.

    The last `aux` outputs are passed through. A graph with several outputs that are not `aux` gets one `d_output_k` for
    each instead; they may have any shape then.

    Raises:
        ShapeError, DtypeError: The loss is not a real scalar. See also `vjp_graph`.
    """
    expect_graph("grad", graph)
    outputs = losses(graph, aux, seed)
    return vjp_graph(graph, wrt, outputs=outputs, seed=seed, allow_unreached=allow_unreached, engine=engine)


def grad(
    graph: Graph,
    wrt: Sequence[str | Value],
    *,
    aux: int = 0,
    seed: Seed = "input",
    allow_unreached: bool = True,
    engine: Engine = STANDARD,
) -> Graph:
    """Return the gradients alone, in `wrt` order; otherwise like `grad_with_loss`."""
    both = grad_with_loss(graph, wrt, aux=aux, seed=seed, allow_unreached=allow_unreached, engine=engine)
    return pruned(both, both.outputs[len(graph.outputs) :])


def losses(graph: Graph, aux: int, seed: Seed) -> range:
    """Return the positions of the outputs that are differentiated.

    Raises:
        ShapeError, DtypeError: An output without a cotangent input is not a real scalar.
    """
    outputs = range(len(graph.outputs) - aux)
    if len(outputs) == 1 or seed == "one":
        for k in outputs:
            _check_loss(graph.outputs[k])
    return outputs


def _check_loss(loss: Value) -> None:
    where = Fact("loss", loss.type, loss.node.origin.source)
    if not loss.dtype.is_float:
        raise DtypeError(f"grad: the loss must be a real float, not {loss.dtype}", where)
    if loss.ndim != 0:
        raise ShapeError(
            f"grad: the loss must be a scalar, not {loss.type}",
            where,
            hint="reduce it, or use vjp_graph, which takes a cotangent of any shape",
        )


def cotangents_of(body: Graph, wrt: Sequence[str], *, engine: Engine = STANDARD) -> Graph:
    """Return a nested graph's VJP: inputs and cotangents of the differentiable outputs in, cotangents of `wrt` out."""
    both = vjp_graph(body, wrt, engine=engine)
    return pruned(both, both.outputs[len(body.outputs) :])


SWEEPS["vjp"] = cotangents_of
