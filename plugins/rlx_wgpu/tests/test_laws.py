"""The laws of devices on this target."""

from rlx_core.testing.laws.devices import *  # noqa: F403  # pytest collects what is imported
