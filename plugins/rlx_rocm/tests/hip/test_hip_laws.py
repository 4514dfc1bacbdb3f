"""The laws of devices on the CuPy driver, with the CPU as stand-in for a GPU."""

from rlx_core.testing.laws.devices import *  # noqa: F403  # pytest collects what is imported
