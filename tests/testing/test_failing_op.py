"""An op whose inference raises is reported by its own laws, and does not stop the collection of others."""

from __future__ import annotations

from types import SimpleNamespace

from rlx_core.ops import Op, Sample, define_op
from rlx_core.ops.arithmetic import add
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.testing.cases import programs
from rlx_core.testing.laws.kernels import kernel_cases


@define_op(domain="mine")
class Failing(Op):
    """Its inference raises what no user is meant to see."""

    def infer(self, x):
        raise KeyError("mine")

    def reference(self, x):
        return x

    @classmethod
    def samples(cls):
        yield Sample("f32[4]")


def test_the_programs_of_a_kernel_for_every_op_are_collected() -> None:
    table = KernelTable("cpu")
    table.register(Op, name="any")(lambda op, *operands, out, workspace: None)
    row = SimpleNamespace(kernel=table.get("any"))
    cases = kernel_cases(row, programs((Failing, add.op)))
    assert {case.program.op for case in cases} == {add.op}
