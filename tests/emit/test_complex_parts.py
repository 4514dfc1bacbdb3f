"""Complex arithmetic in real numbers: every rule of the table is what its op says, and nothing complex is computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.codegen.complex_functions import FORMULAS
from rlx_core.codegen.complex_parts import EACH_PART, MEASURES
from rlx_core.emit.complex_parts import complex_parts, parts
from rlx_core.ir.graph import Graph, Node, Value, as_results
from rlx_core.ir.op import Op
from rlx_core.ops.arithmetic import divide, multiply
from rlx_core.ops.comparison import equal
from rlx_core.ops.complex import ComplexAbs, Imag, MakeComplex, make_complex
from rlx_core.ops.conversion import Cast
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.movement import Narrow
from rlx_core.ops.pairs.pairs import ViewAsComplex, ViewAsReal
from rlx_core.ops.samples import Sample
from rlx_core.ops.scatter import Scatter

OPS = (*(f.op for f in (*FORMULAS, *MEASURES)), *EACH_PART, MakeComplex, Cast, MatMul)
STORED = (ViewAsReal, ViewAsComplex, MakeComplex)
"""What may have a complex operand or result: nothing is computed there."""


def samples(op: type[Op]) -> Iterator[Sample]:
    """Those with something complex about them."""
    assert op.samples is not None
    for sample in op.samples():
        if isinstance(sample, Sample):
            to = sample.attributes.get("to")
            kinds = [*(t.dtype for t in sample.types if t is not None), *([] if to is None else [to])]
            multiplies = op is Scatter and sample.attributes.get("mode") == "mul"  # which is not done part by part
            if op is MakeComplex or (any(d.is_complex for d in kinds) and not multiplies):
                yield sample


def rewritten(op: Op, operands: list[Any]) -> Graph:
    """A program of the op, by its rule."""
    rule = complex_parts.find(op)
    assert rule is not None

    def run(*x: Any) -> Any:
        return rule(op, *(x if op.prepare is None else as_results(op.prepare(*x))))

    return rlx.trace(run, *operands)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_a_rule_is_what_the_op_means_and_computes_nothing_complex(op: type[Op]) -> None:
    tried = list(samples(op))
    assert tried, f"{op.name} has no complex sample"
    for sample in tried:
        one, operands = op(**sample.attributes), sample.arrays(op)
        graph = rewritten(one, operands)
        (found,) = rlx.interpret(graph, dict(zip(graph.input_types, operands, strict=True)))
        wanted = np.asarray(one(*operands))
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
        for node in graph.nodes:
            is_complex = any(v.dtype.is_complex for v in (*node.present(), *node.results))
            assert node.is_leaf or not is_complex or isinstance(node.op, STORED), node


FAR = np.array([1, 0, np.inf, -np.inf, 1e200 + 1e200j, 1e-200 - 1e-200j, 3 - 4j, 1e300j])


@pytest.mark.parametrize("function", [rlx.divide, rlx.abs, rlx.sqrt, rlx.angle], ids=lambda f: f.__name__)
def test_large_and_small_numbers_neither_overflow_nor_vanish(function: Any) -> None:
    """1e200·(1 + i) has a square that is infinite, and a modulus that is not."""
    given = [FAR[4:]] if function is not rlx.divide else [FAR[4:], FAR[4:] * (1 - 2j)]
    op = rlx.trace(function, *given).outputs[0].node.op
    graph = rewritten(op, given)
    (found,) = rlx.interpret(graph, dict(zip(graph.input_types, given, strict=True)))
    np.testing.assert_allclose(found, function(*given), rtol=1e-12)


INVERSE = ("asin", "acos", "atan", "asinh", "acosh", "atanh", "tan", "tanh", "expm1", "log2", "log10", "rsqrt")


@pytest.mark.parametrize("name", INVERSE)
def test_functions_are_numpys_on_the_whole_plane(name: str) -> None:
    """Near the axes, near ±1 and ±i, far away, and on the sides of the cuts that the zeros' signs say."""
    sizes = np.array([1e-9, 1e-3, 0.3, 1 - 1e-7, 1, 1 + 1e-7, 1.7, 19, 21, 50, 1e5, 1e12, 1e25])
    sides = np.concatenate([-sizes, sizes])
    z = (sides[:, None] + 1j * sides).ravel()
    on_cuts = [complex(x, y) for x in (-2.0, -0.5, 0.5, 2.0) for y in (0.0, -0.0)]
    function = getattr(rlx, name)
    z = np.concatenate([z, on_cuts, [complex(each.imag, each.real) for each in on_cuts]])
    if name == "expm1":
        z = z[z.real < 100]
    graph = rewritten(rlx.trace(function, z).outputs[0].node.op, [z])
    (found,) = rlx.interpret(graph, dict(zip(graph.input_types, [z], strict=True)))
    wanted = function(z)
    np.testing.assert_allclose(found, wanted, rtol=3e-12)  # NumPy's own are so far from the truth where |z| is 1e12
    np.testing.assert_array_equal(np.signbit(found.imag), np.signbit(wanted.imag))


def test_the_logarithm_of_what_is_nearly_one_is_exact() -> None:
    """NumPy's cancels there: the series tells."""
    z = np.array([1e-9 + 2e-9j, -3e-7 + 1e-9j, -1e-30 + 0j, 1e-12j])
    graph = rewritten(rlx.trace(rlx.log1p, z).outputs[0].node.op, [z])
    (found,) = rlx.interpret(graph, dict(zip(graph.input_types, [z], strict=True)))
    np.testing.assert_allclose(found, z - z * z / 2 + z * z * z / 3, rtol=1e-14)


def test_a_power_of_zero_and_a_zeroth_power_are_numpys() -> None:
    a, b = np.array([0, 0, 0j, 2 + 1j, -1, 2j]), np.array([0, 2, 1j, 0, 0.5, -3 + 1j])
    graph = rewritten(rlx.trace(rlx.pow, a, b).outputs[0].node.op, [a, b])
    (found,) = rlx.interpret(graph, dict(zip(graph.input_types, (a, b), strict=True)))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, a**b, rtol=1e-12, atol=1e-15)


def test_the_modulus_of_what_is_infinite_is_infinite_whatever_the_other_part_is() -> None:
    z = np.array([complex(np.inf, np.nan), complex(np.nan, -np.inf), complex(np.nan, 1), complex(-np.inf, 0), 0j])
    graph = rewritten(ComplexAbs(), [z])
    np.testing.assert_array_equal(rlx.interpret(graph, {next(iter(graph.input_types)): z})[0], np.abs(z))


def test_division_by_zero_is_numpys() -> None:
    a, b = np.array([1 + 0j, -1 + 0j, 0j, 1 + 1j]), np.zeros(4, complex)
    graph = rewritten(divide.op(), [a, b])
    (found,) = rlx.interpret(graph, dict(zip(graph.input_types, (a, b), strict=True)))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, a / b)


@pytest.mark.parametrize("op", [Imag(), ComplexAbs(), multiply.op(), equal.op()], ids=lambda op: op.name)
def test_a_function_of_constants_alone_is_a_node(op: Op) -> None:
    """Where passes do not fold it, a rule sees constants and nothing else."""
    z = np.array([[1 + 2j, -3j]], np.complex64)
    operands = [z] * (2 if op in (multiply.op(), equal.op()) else 1)
    rule = complex_parts.find(op)
    assert rule is not None
    assert op.reference is not None

    def run() -> Any:
        found = rule(op, *map(rlx.asarray, operands))
        assert isinstance(found, Value)
        return found

    graph = rlx.trace(run)
    np.testing.assert_allclose(rlx.interpret(graph, {})[0], op.reference(*operands), rtol=1e-6)


def test_between_two_rules_nothing_is_stored_as_complex() -> None:
    def chain(z: Any, w: Any) -> Any:
        product = make_complex(*(re_or_im for re_or_im in parts(z)))
        again = parts(product)
        sides = parts(complex_parts.find(MakeComplex())(MakeComplex(), *again))  # type: ignore[misc]
        assert again == product.node.operands
        return sides[0] + sides[1] + rlx.real(w)

    graph = rlx.trace(chain, np.ones(3, complex), np.ones(3, complex))
    assert sum(isinstance(node.op, Narrow) for node in graph.nodes if node in needed(graph)) == 2


def needed(graph: Graph) -> set[Node]:
    """What the results depend on."""
    found = {v.node for v in graph.outputs}
    for node in reversed(graph.nodes):
        if node in found:
            found |= {v.node for v in node.present()}
    return found
