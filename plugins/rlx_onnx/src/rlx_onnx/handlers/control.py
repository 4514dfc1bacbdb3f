"""Control flow: branches, loops and scans, whose bodies are graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import optree

import rlx_core as rlx
from rlx_core.errors import DtypeError, FormatError, RlxError, ShapeError, UnsupportedError
from rlx_core.ir.graph import ambient_builder
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles
from rlx_onnx.walking.values import Coded, is_array, is_known, is_sizes, traced

MOST_STEPS = 10_000
"""Steps that a loop is written out for, where its steps differ in types."""


@handles("If", is_pure=False, takes_coded=True)
def branch(node: OnnxNode, condition: Any) -> Any:
    """One of two graphs; where the condition is known, that one alone is there."""
    if is_array(condition):
        chosen = bool(np.asarray(condition).ravel()[0]) if np.size(condition) else False
        return tuple(node.body("then_branch" if chosen else "else_branch")())
    kinds = [
        each.type.WhichOneof("value") for name in ("then_branch", "else_branch") for each in node.graph(name).output
    ]
    if any(kind not in ("tensor_type", None) for kind in kinds):
        return branch(node, node.known(0, "condition"))  # lists are there while the model is walked only
    return _chosen_when_it_runs(node, rlx.reshape(condition, ()))


UNTYPED = (DtypeError, FormatError, ShapeError)
"""Errors which report that a graph does not fit its operands."""


def _chosen_when_it_runs(node: OnnxNode, predicate: Any) -> Any:
    """Both graphs as a conditional.

    Relations of sizes that one of them relies on must not be guards: these are checked whether or not it runs. So with sizes
    that are symbols the model is read again for numbers; a graph that does not fit those then raises its error when it runs.
    """
    around, types = ambient_builder(), {}  # type: Any, dict[str, Any]
    faults: dict[str, RlxError] = {}

    def body(name: str) -> Any:
        def run() -> tuple[Any, ...]:
            try:
                result = _traceable(node, node.body(name)())
            except UNTYPED as error:
                faults[name] = error
                raise
            builder = ambient_builder()
            assert builder is not None, "a conditional's graphs are traced"
            if node.walk.has_open_sizes and any(guard not in around.guards for guard in builder.guards):
                node.walk.specialise(node, f"whether {name} fits its operands")
            types[name] = tuple(optree.tree_map(lambda value: value.type, each) for each in result)
            return result

        return run

    bodies = {name: body(name) for name in ("then_branch", "else_branch")}
    try:
        return tuple(rlx.cond(predicate, *bodies.values()))
    except UNTYPED:
        if node.walk.has_open_sizes and (faults or node.walk.follows_from_sizes(predicate)):
            node.walk.specialise(node, "which of its graphs fits")
        if not faults:
            raise
    (bad, error), *_ = faults.items()
    matches, holds = ("then_branch", predicate) if bad == "else_branch" else ("else_branch", rlx.logical_not(predicate))
    # The branch that fits is traced first, which gives the types of the other; if neither fits, the model is invalid. The
    # callback takes the predicate, because a function without operands may be evaluated before the program runs.
    return tuple(
        rlx.cond(holds, bodies[matches], lambda: rlx.pure_callback(_raising(error), types[matches], predicate))
    )


def _raising(error: RlxError) -> Any:
    """A function that raises an error when a program calls it."""

    def branch_that_does_not_fit(predicate: Any) -> Any:
        raise error

    return branch_that_does_not_fit


def _traceable(node: OnnxNode, values: list[Any]) -> tuple[Any, ...]:
    """Results that both branches, or every step, return: arrays and lists of them."""
    return tuple(_array(node, each) for each in values)


def _array(node: OnnxNode, value: Any) -> Any:
    if isinstance(value, list):
        return [_array(node, each) for each in value]
    if value is None or isinstance(value, Coded):
        node.refuse("an optional, or elements that rlx has no dtype for, as a result of a branch", "a tensor")
    return rlx.asarray(traced(value))


@handles("Loop", is_pure=False, takes_sizes=True, takes_coded=True)
def loop(node: OnnxNode, maximum: Any, condition: Any, *carried: Any) -> Any:
    """Run steps while a condition is true, up to a maximum; the outputs of each step other than its state are stacked."""
    body, states = node.body("body"), len(carried)
    stacked = len(node.graph("body").output) - 1 - states
    if stacked < 0 or len(node.graph("body").input) != states + 2:
        raise FormatError(f"{node}: its body does not take what it carries")
    count = None if maximum is None else int(np.asarray(maximum).ravel()[0]) if is_array(maximum) else maximum
    if isinstance(count, int) and _always(node, condition):
        if count == 0 or any(isinstance(each, list) or each is None for each in carried):
            return _written_out(node, body, count, None, carried, stacked)
        try:
            return _counted(node, body, count, carried)
        except (ShapeError, DtypeError, UnsupportedError):
            # A state changes its type from step to step, or a step needs to know its number.
            return _written_out(node, body, count, None, carried, stacked)
    if (
        (count is None or isinstance(count, int))
        and (condition is None or is_array(condition))
        and all(map(is_known, carried))
    ):
        return _written_out(node, body, count, condition, carried, stacked)
    if stacked or any(isinstance(each, list) or each is None for each in carried):
        # What grows with the steps needs to know how many those are.
        if not isinstance(count, int) and count is not None:
            count = int(node.known(0, "trip count").ravel()[0])
        if condition is not None and not is_array(condition):
            condition = node.known(1, "condition")
        return _written_out(node, body, count, condition, carried, stacked)
    return _while(node, body, count, condition, carried)


def _always(node: OnnxNode, condition: Any) -> bool:
    """Return whether the loop goes on until its steps are done: the body returns the condition as it came, and it came true."""
    if condition is not None and not (is_array(condition) and bool(np.all(condition))):
        return False
    graph = node.graph("body")
    name = graph.output[0].name
    sources = {out: each for each in graph.node for out in each.output}
    while name in sources and sources[name].op_type in ("Identity", "Cast"):
        name = sources[name].input[0]
    if name == graph.input[1].name:
        return True
    if name in sources and sources[name].op_type == "Constant":
        return bool(np.all(OnnxNode(node.walk, sources[name], (), {}).get("value", np.False_)))
    return any(each.name == name for each in graph.initializer) and bool(
        np.all(np.frombuffer(next(e for e in graph.initializer if e.name == name).raw_data, np.bool_))
    )


def _counted(node: OnnxNode, body: Any, count: int, carried: Any) -> Any:
    """A loop of so many steps as one scan."""
    first = tuple(rlx.asarray(traced(each)) for each in carried)

    def step(carry: Any, number: Any) -> Any:
        _, *result = body(number, np.True_, *carry)
        result = list(_traceable(node, result))
        return tuple(result[: len(first)]), tuple(result[len(first) :])

    last, rows = rlx.scan(step, first, rlx.arange(count, dtype=rlx.i64))
    return (*last, *rows)


def _written_out(node: OnnxNode, body: Any, count: int | None, condition: Any, carried: Any, stacked: int) -> Any:
    """Every step as its own part of the program, as far as conditions are known."""
    state, rows = list(carried), [[] for _ in range(stacked)]  # type: list[Any], list[list[Any]]
    goes_on, number = condition is None or bool(np.all(condition)), 0
    while goes_on and (count is None or number < count):
        if number >= MOST_STEPS:
            node.refuse(f"a loop of more than {MOST_STEPS} steps that change their types", "steps of one type")
        on, *result = body(np.asarray(number, np.int64), np.True_, *state)
        state, number = result[: len(state)], number + 1
        for row, each in zip(rows, result[len(state) :], strict=True):
            row.append(traced(each))
        if condition is not None or count is None:
            if not is_array(on):
                on = node.walk.known(on, node, 1, "condition")
            if not is_array(on):
                node.refuse(
                    "a condition that depends on what the program is given beside types that change",
                    "steps of one type",
                )
            goes_on = bool(np.all(on))
    return (*state, *(_stacked(node, row) for row in rows))


def _stacked(node: OnnxNode, row: list[Any]) -> Any:
    if not row:
        node.refuse("results of a loop without a step", "a step")
    return rlx.stack(row, axis=0)


def _while(node: OnnxNode, body: Any, count: Any, condition: Any, carried: Any) -> Any:
    """Emit a loop whose number of steps is determined at run time."""
    goes_on = rlx.asarray(True) if condition is None else rlx.reshape(rlx.asarray(condition), ())
    maximum = (
        None
        if count is None
        else rlx.reshape(rlx.astype(traced(count) if is_sizes(count) else rlx.asarray(count), rlx.i64), ())
    )
    first = (rlx.asarray(np.int64(0)), goes_on, *(rlx.asarray(traced(each)) for each in carried))

    def holds(carry: Any) -> Any:
        return carry[1] if maximum is None else rlx.logical_and(carry[1], carry[0] < maximum)

    def step(carry: Any) -> Any:
        on, *result = body(carry[0], carry[1], *carry[2:])
        on = np.True_ if condition is None and count is not None else on
        return (carry[0] + 1, rlx.reshape(rlx.asarray(traced(on)), ()), *_traceable(node, result))

    return tuple(rlx.while_loop(holds, step, first)[2:])


@handles("Scan", is_pure=False)
def scan(node: OnnxNode, *operands: Any) -> Any:
    """A graph for each element of sequences, which carries states."""
    body, many = node.body("body"), int(node.get("num_scan_inputs", 0))
    if not 0 < many <= len(operands):
        raise FormatError(f"{node}: it has {many} sequences among {len(operands)} operands")
    states, sequences = operands[: len(operands) - many], operands[len(operands) - many :]
    created = len(node.graph("body").output) - len(states)
    axes = node.get("scan_input_axes", [0] * many)
    transposed = node.get("scan_input_directions", [0] * many)
    out_axes, out_turned = (
        node.get("scan_output_axes", [0] * created),
        node.get("scan_output_directions", [0] * created),
    )
    xs = []
    for x, axis, back in zip(sequences, axes, transposed, strict=True):
        data = rlx.moveaxis(rlx.asarray(x), axis, 0)
        xs.append(rlx.flip(data, axis=0) if back else data)
    first = tuple(rlx.asarray(each) for each in states)

    def step(carry: Any, now: Any) -> Any:
        result = _traceable(node, body(*carry, *now))
        return result[: len(first)], result[len(first) :]

    last, rows = rlx.scan(step, first, tuple(xs))
    results = []
    for row, axis, back in zip(rows, out_axes, out_turned, strict=True):
        row = rlx.flip(row, axis=0) if back else row
        results.append(rlx.moveaxis(row, 0, axis) if axis else row)
    return (*last, *results)
