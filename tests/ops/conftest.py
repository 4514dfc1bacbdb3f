"""Derivatives by the ops' own rules alone, for tests of single ops: two sweeps of twenty lines, without the engines.

What fails with these is a rule, not a transformation. A node without a written rule is decomposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Builder, Node, Value, as_results, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import ZERO, Zero
from rlx_core.ir.types import TensorType

Function = Callable[..., Any]


def pull(nodes: Sequence[Node], cotangents: dict[Value, Value], derive: frozenset[str]) -> dict[Value, Value]:
    """The cotangents of every value that `nodes` pass one to; rules of ops named in `derive` are not used."""
    for node in reversed(nodes):
        g = [cotangents.get(r, ZERO) for r in node.results]
        if all(isinstance(c, Zero) for c in g) or not any(v.dtype.is_differentiable for v in node.present()):
            continue
        if node.op.vjp is None or node.op.name in derive:
            builder = node.owner
            start = len(builder.nodes)
            inner = dict(zip(as_results(node.op.decompose(*node.operands)), g, strict=True))
            before = {v: cotangents.pop(v, None) for v in node.present()}
            found = pull(builder.nodes[start:], inner, derive)
            contributions = [(v, found.get(v, ZERO)) for v in dict.fromkeys(node.present())]
            cotangents |= {v: c for v, c in before.items() if c is not None}
        else:
            y = node.results if len(node.results) > 1 else node.result
            found_by_rule = as_results(node.op.vjp(g[0] if len(g) == 1 else tuple(g), *node.operands, y=y))
            contributions = list(zip(node.operands, found_by_rule, strict=False))
        for operand, cotangent in contributions:
            if operand is None or isinstance(cotangent, Zero) or not operand.dtype.is_differentiable:
                continue
            assert cotangent.type == operand.type, f"{node}: cotangent {cotangent.type}"
            known = cotangents.get(operand)
            cotangents[operand] = cotangent if known is None else known + cotangent
    return cotangents


def push(nodes: Sequence[Node], tangents: dict[Value, Any]) -> dict[Value, Any]:
    """The tangents of every value of `nodes` that one reaches."""
    for node in nodes:
        t = tuple(tangents.get(v, ZERO) if v is not None else ZERO for v in node.operands)
        if all(isinstance(v, Zero) for v in t):
            continue
        if node.op.jvp is None:
            start = len(node.owner.nodes)
            results = as_results(node.op.decompose(*node.operands))
            inner = push(node.owner.nodes[start:], dict(tangents))
            found: Sequence[Any] = [inner.get(r, ZERO) for r in results]
        else:
            y = node.results if len(node.results) > 1 else node.result
            found = as_results(node.op.jvp(t, *node.operands, y=y))
        for result, tangent in zip(node.results, found, strict=True):
            if not isinstance(tangent, Zero):
                assert tangent.type == result.type, f"{node}: tangent {tangent.type}"
                tangents[result] = tangent
    return tangents


class Calculus:
    """Functions of values, evaluated and differentiated on arrays."""

    def evaluate(self, function: Function, *arrays: Any, mode: Any = "typed") -> Any:
        """`function` of these arrays, by the interpreter; a tuple if it gives several values."""
        fed = [np.asarray(a) for a in arrays]
        builder = Builder("evaluate")
        x = [builder.input(f"x{i}", TensorType(dtype(a.dtype), a.shape)) for i, a in enumerate(fed)]
        with building(builder):
            results = as_results(function(*x))
        found = interpret(builder.finish(results), {f"x{i}": a for i, a in enumerate(fed)}, mode=mode)
        return found[0] if len(found) == 1 else found

    def vjp(self, function: Function, *, derive: Sequence[str] = ()) -> Function:
        """(g, *x) → the cotangents of x."""

        def pulled(g: Value, *x: Value) -> tuple[Value, ...]:
            builder = x[0].node.owner
            start = len(builder.nodes)
            y = function(*x)
            found = pull(builder.nodes[start:], {y: g}, frozenset(derive))
            return tuple(found[v] if v in found else builder.constant(np.zeros(v.shape), v.dtype) for v in x)

        return pulled

    def jvp(self, function: Function) -> Function:
        """(t, *x) → the tangent of the result, with one tangent or `ZERO` for each of x in t."""

        def pushed(t: Sequence[Any], *x: Value) -> Any:
            builder = x[0].node.owner
            start = len(builder.nodes)
            y = function(*x)
            known = {v: tangent for v, tangent in zip(x, t, strict=True) if not isinstance(tangent, Zero)}
            found = push(builder.nodes[start:], known).get(y, ZERO)
            return builder.constant(np.zeros(y.shape), y.dtype) if isinstance(found, Zero) else found

        return pushed

    def gradient(self, function: Function, argument: int = 0) -> Function:
        """*x → the cotangent of one argument for a cotangent of ones: for element-wise functions, the derivative."""

        def differentiated(*x: Value) -> Value:
            builder = x[0].node.owner
            start = len(builder.nodes)
            y = function(*x)
            ones = builder.constant(np.ones(y.type.static_shape), y.dtype)
            found = pull(builder.nodes[start:], {y: ones}, frozenset())
            target = x[argument]
            return found[target] if target in found else builder.constant(np.zeros(target.shape), target.dtype)

        return differentiated

    def tangent(self, function: Function, argument: int = 0) -> Function:
        """*x → the tangent of the result for a tangent of ones in one argument."""

        def differentiated(*x: Value) -> Any:
            ones = x[argument].node.owner.constant(np.ones(x[argument].type.static_shape), x[argument].dtype)
            return self.jvp(function)([ones if i == argument else ZERO for i in range(len(x))], *x)

        return differentiated

    def slopes(self, function: Function, x: Sequence[float], *others: Any) -> np.ndarray:
        """The derivative at these points in f64, which must be the same in both modes."""
        arrays = (np.asarray(x, np.float64), *others)
        backward = self.evaluate(self.gradient(function), *arrays)
        np.testing.assert_array_equal(backward, self.evaluate(self.tangent(function), *arrays))
        return backward


@pytest.fixture
def calculus() -> Calculus:
    """Evaluation and differentiation by the ops' own rules."""
    return Calculus()
