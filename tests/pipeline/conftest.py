"""A small target made of data: kernels that compute nothing, for deciding about."""

from typing import ClassVar

import pytest

import rlx_core.ops.operators  # noqa: F401  gives values their operators
from rlx_core.ir.op import Op, define_op
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.kernels import KernelTable


def make_target(*rows, name="toy", accepts_views=True):
    """A target with one kernel a row: (op class, dtypes, conditions)."""
    table = KernelTable(name, plugin="toy")
    for op, dtypes, *when in rows:
        table.register(op, dtypes=dtypes, when=tuple(when), name=op.name.split(".")[1] + "_kernel")(nothing)
    return Target(name, table, accepts_views=accepts_views)


def nothing(op, *operands, out, workspace):
    """A kernel that is only ever chosen."""


@pytest.fixture
def target_with():
    return make_target


@define_op(domain="test")
class Noise(Op):
    is_pure: ClassVar = False

    def infer(self, x):
        return x


@pytest.fixture
def noise():
    return Noise()
