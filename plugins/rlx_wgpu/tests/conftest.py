"""The target on a Vulkan driver in software, lavapipe: these tests need no GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
from rlx_wgpu.plugin import rlx_availability

INSTALL = "python -m pip install ./plugins/rlx_wgpu && apt-get install mesa-vulkan-drivers"


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads what another run compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLX_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def target() -> str:
    return "wgpu"


@pytest.fixture
def host(cache: None, monkeypatch: pytest.MonkeyPatch) -> PluginHost:
    """A host with the target, which may use this machine's processor."""
    monkeypatch.setenv("RLX_WGPU_ALLOW_CPU", "1")
    if rlx_availability() is not None:
        pytest.skip(f"there is no WebGPU adapter: {INSTALL}")
    from rlx_wgpu import discovery

    if not discovery.found():
        pytest.skip(f"there is no WebGPU adapter: {INSTALL}")
    known = default_host()
    if any(entry.name == "wgpu" for entry in known.entries):
        return known
    import rlx_wgpu.plugin

    return PluginHost([*known.entries, given_entry(rlx_wgpu.plugin)])
