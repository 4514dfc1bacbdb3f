"""A loop or a choice has the effects of what is inside, however deep."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlx_core.ir.graph import Builder, building
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops.activation import exp
from rlx_core.ops.call import traced
from rlx_core.ops.comparison import less
from rlx_core.ops.control.conditional import If
from rlx_core.ops.control.loop import While
from rlx_core.ops.control.scan import Scan
from rlx_core.passes.dead_code import DeadCode
from rlx_core.passes.engine.base import Context


@define_op(domain="test")
class Printed(Op):
    """The operand, which is shown to somebody."""

    is_pure: ClassVar = False

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x + 0


def loud(x: Any) -> Any:
    return Printed()(x)


QUIET, LOUD = (traced("body", f, "f32[]") for f in (exp, loud))
COND = traced("cond", lambda x: less(x, 1.0), "f32[]")


def test_purity_is_that_of_the_graphs() -> None:
    assert all(op.is_pure for op in (If(QUIET, QUIET), While(COND, QUIET, 1), Scan(QUIET, 1, 0, 2)))
    noisy = (If(QUIET, LOUD), While(COND, LOUD, 1), Scan(LOUD, 1, 0, 2))
    assert not any(op.is_pure for op in noisy)
    assert not Scan(traced("outer", lambda x: If(LOUD, QUIET)(less(x, 1.0), x), "f32[]"), 1, 0, 2).is_pure


def test_a_loop_with_an_effect_stays_though_nobody_reads_it() -> None:
    builder = Builder("f")
    with building(builder):
        x = builder.input("x", spec("f32[]"))
        Scan(LOUD, 1, 0, 2)(x)
        Scan(QUIET, 1, 0, 2)(x)
    graph = builder.finish([x])
    left = [n.op for n in DeadCode().run(graph, Context()).graph.nodes if not n.is_leaf]
    assert left == [Scan(LOUD, 1, 0, 2)]
