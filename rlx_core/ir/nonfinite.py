"""Locating the op that produces a NaN: results are checked inside a context, and a bad one is traced to its op.

A program is not instrumented. Only when one of its results is bad is its graph evaluated again, node by node with NumPy, until
the first node whose result is bad while none of its operands is. Bodies of loops and branches are evaluated node by node too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from rlx_core import ir
from rlx_core.errors import Fact, NonFiniteError
from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.op import Op
from rlx_core.ir.provenance import Source
from rlx_core.system.context import assigned
from rlx_core.system.records import frozen


@frozen
class Check:
    """Values to search for: NaN, and infinities where `infinities` is set."""

    infinities: bool = False

    def is_bad(self, array: Any) -> bool:
        """Return whether a floating-point or complex array has such an element; reads arrays of devices."""
        host = np.asarray(array)
        if host.dtype.kind not in "fcV":  # ml_dtypes' floats have kind V
            return False
        with np.errstate(all="ignore"):
            wide = host if host.dtype.kind in "fc" else host.astype(np.float32)
            return bool((~np.isfinite(wide) if self.infinities else np.isnan(wide)).any())

    def name(self, array: Any) -> str:
        """Return "NaN" or "an infinity", whichever a bad array has."""
        return "NaN" if Check().is_bad(array) else "an infinity"


_active: ContextVar[Check | None] = ContextVar("nonfinite", default=None)


def active() -> Check | None:
    """The check that results of this context are subject to, or `None`."""
    return _active.get()


def checking(check: Check | None) -> assigned[Check | None]:
    """Check the results of programs and ops that run inside `with`, which is inside `watching`; `None` checks nothing."""
    return assigned(_active, check)


def expect_finite(op: Op, operands: Sequence[Any], results: Sequence[Any], source: Source | None) -> None:
    """Check the results of one op that was applied to arrays.

    Raises:
        NonFiniteError: A result is bad, and no operand is.
    """
    check = active()
    if check is None or any(check.is_bad(x) for x in operands if x is not None):
        return
    for result in results:
        if check.is_bad(result):
            raise _error(check, op, result, source, plugin_of(op))


class _Located(Exception):
    """Ends an evaluation at the node that produces the first bad value."""

    def __init__(self, value: Value, array: np.ndarray, evaluations: int) -> None:
        super().__init__()
        self.value, self.array, self.evaluations = value, array, evaluations


def expect_finite_results(
    graph: Graph, inputs: Mapping[str, Any], params: Mapping[str, Any], results: Sequence[Any]
) -> None:
    """Check the results of a run of `graph`.

    Args:
        graph: The program as it was traced, so that nodes are the user's.
        inputs, params: The arguments of the run, by name, from before the run.
        results: Of the run, in the order of the graph's outputs.

    Raises:
        NonFiniteError: A result is bad.
    """
    check = active()
    bad = [i for i, result in enumerate(results) if check is not None and check.is_bad(result)]
    if check is None or not bad:
        return
    arrays = {name: np.asarray(array) for name, array in {**params, **inputs}.items()}
    located = _locate(graph, arrays, check)
    if located is not None:
        node, nested = located.value.node, located.value.node.owner is not graph.nodes[0].owner
        error = _error(check, node.op, located.array, node.origin.source, node.origin.plugin or plugin_of(node.op))
        if nested:
            error.with_fact(Fact("iteration", f"{located.evaluations - 1}, the {node.label} of a loop or branch"))
        raise error
    what = check.name(results[bad[0]])
    for name, array in arrays.items():
        if check.is_bad(array):
            raise NonFiniteError(
                f"{graph.name}: result {bad[0]} has {what}, which comes in with the argument {name}",
                Fact(name, {**graph.input_types, **graph.param_types}[name]),
            )
    raise NonFiniteError(
        f"{graph.name}: result {bad[0]} has {what}, and the reference interpreter computes finite values",
        Fact("result", graph.outputs[bad[0]].type, graph.outputs[bad[0]].node.origin.source),
        hint="a kernel differs from its op: report it with the program, and see docs/how-to/debug-a-miscompile.md",
    )


def plugin_of(op: Op) -> str:
    """The package that defines an op."""
    return type(op).__module__.partition(".")[0].replace("_", "-")


def _locate(graph: Graph, arrays: Mapping[str, np.ndarray], check: Check) -> _Located | None:
    """The first node in the order of evaluation that makes a bad value of good ones, if the interpreter meets one."""
    bad: set[Value] = set()
    evaluations: Counter[Node] = Counter()

    def look(value: Value, array: np.ndarray) -> np.ndarray:
        node = value.node
        if value.index == 0:
            evaluations[node] += 1
            bad.difference_update(node.results)  # a body's values are evaluated again in each iteration
        if check.is_bad(array):
            if not node.is_leaf and not any(v in bad for v in node.present()):
                raise _Located(value, array, evaluations[node])
            bad.add(value)
        return array

    inputs = {name: array for name, array in arrays.items() if name in graph.input_types}
    params = {name: array for name, array in arrays.items() if name in graph.param_types}
    try:
        ir.interpret.interpret(graph, inputs, params, rounded=look)
    except _Located as located:
        return located
    return None


def _error(check: Check, op: Op, array: Any, source: Source | None, plugin: str) -> NonFiniteError:
    host = np.asarray(array)
    wide = host if host.dtype.kind in "fc" else host.astype(np.float32)
    where = np.argwhere(~np.isfinite(wide) if check.infinities else np.isnan(wide))
    first = ", ".join(map(str, where[0])) if host.ndim else ""
    return NonFiniteError(
        f"{op.title}: it produces {check.name(host)} of operands that have none",
        Fact("op", op.name, source),
        Fact("plugin", plugin),
        Fact("elements", f"{len(where)} of {host.size}; the first is [{first}]" if host.ndim else "1 of 1"),
    )
