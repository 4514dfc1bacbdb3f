"""The laws of devices on CuPy's road, where the processor stands in for a GPU."""

from rlx_core.testing.laws.devices import *  # noqa: F403  # pytest collects what is imported
