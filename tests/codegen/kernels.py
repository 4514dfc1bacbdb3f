"""Kernels of ops whose buffers are all dense, and the text of one."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.codegen import check_kernel, formula_of, kernel_of
from rlx_core.codegen.loops import Kernel
from rlx_core.codegen.places import Place
from rlx_core.ir.graph import infer
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops import standard_ops
from rlx_core.testing.cases import OpProgram, programs

__all__ = ["SAMPLES", "SOFTMAX", "dense_kernel", "kernel"]

SOFTMAX = """\
kernel softmax grid [3] row [5]
  operand 0: x0 f32
  result 1: y0 f32
  %0 = load x0[g0*20 + r1*4] : f32[row]
  %1 = max over row of %0 : f32
  %2 = sub(%0, %1) : f32[row]
  %3 = exp(%2) : f32[row]
  %4 = sum over row of %3 : f32
  %5 = div(%3, %4) : f32[row]
  store %5 -> y0[g0*20 + r1*4]
"""
"""Of `f32[3, 5]`, without the loops that comments tell of."""


def dense_kernel(op: Op, types: Sequence[TensorType | None]) -> Kernel | None:
    """The kernel of an op on operands of such types; None where it is no loop kernel."""
    formula = formula_of(op, tuple(types))
    if formula is None:
        return None
    places = [None if t is None else Place.dense(t) for t in types]
    return check_kernel(kernel_of(formula, places, [Place.dense(t) for t in infer(op, types)]))


SAMPLES: dict[OpProgram, Kernel] = {
    p: made
    for p in programs(standard_ops())
    if p.is_static and (made := dense_kernel(p.node.op, p.node.operand_types)) is not None
}
"""The samples of standard ops that are kernels, in memory without gaps."""


def kernel(op: Op, *specs: str) -> Kernel:
    """The kernel of an op that has one: `kernel(Softmax(), "f32[3, 5]")`."""
    made = dense_kernel(op, tuple(map(spec, specs)))
    assert made is not None, op.name
    return made
