"""The laws over the ops that the options choose, for `pytest --pyargs rlx_core.testing`."""

from rlx_core.testing.laws import EveryOp


class TestEveryOp(EveryOp):
    """Each law, for each op."""
