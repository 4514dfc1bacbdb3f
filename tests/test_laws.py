"""The laws over every standard op; `pytest tests/test_laws.py --rlx-op=softmax` tries one."""

from rlx_core.testing.laws import EveryOp


class TestStandardOps(EveryOp):
    """Each law, for each op of `rlx_core.ops`."""
