"""The laws of devices on this target."""

from rlx_core.testing.laws_of_devices import *  # noqa: F403  # pytest collects what is imported
