"""Parts of generated programs: loops change nothing, and a wrong derivative there is seen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rlx_core.errors import RlxError
from rlx_core.ir.graph import Builder, Value, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops.control.scan import Scan
from rlx_core.testing.generate import Growth
from rlx_core.testing.judges import mode_complaint
from rlx_core.testing.parts import Part, wrapped


def parts(count: int) -> Iterator[Part]:
    for seed in range(count):
        rng = np.random.default_rng(seed)
        inner = Growth(rng, Builder("part"), is_part=True)
        for _ in range(3):
            inner.grow()
        results = [k.value for k in inner.known if not k.value.node.is_leaf]
        if not results or not inner.fed:
            continue
        try:
            yield wrapped(rng, inner.builder.finish(results[-2:]), inner.fed)
        except RlxError:
            continue


@pytest.mark.medium
def test_a_part_in_its_loops_is_the_part_without_them() -> None:
    tried = 0
    for part in parts(80):
        tried += part.graph.nodes != part.flat.nodes
        with np.errstate(all="ignore"):
            found, wanted = (interpret(g, part.fed, mode="wide") for g in (part.graph, part.flat))
        for a, b in zip(found, wanted, strict=True):
            scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * scale)
    assert tried > 20


@define_op
class Slip(Op):
    """a·b, whose rule may forget a factor."""

    vjp_is_right: bool = True

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        return a

    def decompose(self, a: Value, b: Value) -> Value:
        return a * b

    def vjp(self, g: Value, a: Value, b: Value, *, y: Value) -> tuple[Value, Value]:
        return g * b, g * a if self.vjp_is_right else g


@pytest.mark.parametrize("is_right", [True, False])
def test_a_wrong_rule_inside_of_a_loop_is_seen(is_right: bool) -> None:
    inner, builder = Builder("step"), Builder("looped")
    with building(inner):
        carry, factor = inner.input("carry", spec("f64[3]")), inner.input("factor", spec("f64[3]"))
        step = inner.finish([Slip(is_right)(carry, factor)])
    with building(builder):
        x, y = builder.input("x", spec("f64[3]")), builder.input("y", spec("f64[3]"))
        graph = builder.finish([Scan(step, 1, 1, 3)(x, y)])

    said = mode_complaint(graph, {"x": np.array([1.0, -2.0, 0.5]), "y": np.array([0.3, 1.5, 2.0])}, 0)

    assert said is None if is_right else said is not None and "not transposes" in said
