"""The laws that rlx asks of every op, asked of sparse systems."""

from rlx_core.testing.laws import EveryOp
from rlx_custom_ops.sparse.ops import OPS


class TestSparse(EveryOp):
    """Each law, for each op of the domain."""

    ops = OPS
