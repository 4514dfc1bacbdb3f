"""The laws that rlx asks of every op, asked of ours: types, derivatives, batching, printing, refusals."""

from rlx_core.testing.laws import EveryOp
from rlx_custom_ops.ops import OPS


class TestLinearAlgebra(EveryOp):
    """Each law, for each op of this package."""

    ops = OPS
