"""The laws' options, also where rlx-core is on the path without being installed."""

pytest_plugins = ["rlx_core.testing.plugin"]
