"""What `pytest --pyargs rlx_core.testing` runs: the laws over the ops that the options choose."""

from rlx_core.testing.laws import EveryOp


class TestEveryOp(EveryOp):
    """Each law, for each op."""
