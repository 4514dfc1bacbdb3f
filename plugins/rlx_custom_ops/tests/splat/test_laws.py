"""The laws that rlx asks of every op, asked of rasterising and its cotangents."""

from rlx_core.testing.laws import EveryOp
from rlx_custom_ops.splat.ops import OPS


class TestSplats(EveryOp):
    """Each law, for each op of the domain."""

    ops = OPS
