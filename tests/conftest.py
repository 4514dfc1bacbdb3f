"""The laws' options, a backend where rlx is on the path without being installed, and a cache that starts empty."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from rlx_core.plugins import PluginHost, set_default_host

pytest_plugins = ["rlx_core.testing.plugin"]

# How long an example takes says how busy the machine is, and nothing about rlx.
settings.register_profile("rlx", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rlx")


@pytest.fixture(scope="session", autouse=True)
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads what another run compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLX_CACHE_DIR", str(tmp_path_factory.mktemp("cache") / "rlx"))
        yield


@pytest.fixture(scope="session", autouse=True)
def a_backend_is_there() -> Iterator[None]:
    """A default host with the backend of this checkout, unless one is installed."""
    if PluginHost().activate_all().backends or importlib.util.find_spec("rlx_cpu") is None:
        yield
        return
    import rlx_cpu.plugin

    before = set_default_host(PluginHost([rlx_cpu.plugin]))
    yield
    set_default_host(before)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write what pages of the documentation print into them")
