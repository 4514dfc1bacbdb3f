"""The target on PoCL: an OpenCL device that pip brings, so these tests need no GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry

INSTALL = 'python -m pip install "./plugins/rlx_rocm[pocl]"'


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """PoCL keeps what it compiled; no test reads what another run left there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_CACHE_DIR", str(tmp_path_factory.mktemp("pocl")))
        yield


@pytest.fixture
def target() -> str:
    return "rocm"


@pytest.fixture
def host(cache: None, monkeypatch: pytest.MonkeyPatch) -> PluginHost:
    """A host with the target, which may use this machine's processor."""
    if importlib.util.find_spec("pyopencl") is None or importlib.util.find_spec("pocl_binary_distribution") is None:
        pytest.skip(f"there is no OpenCL device: {INSTALL}")
    monkeypatch.setenv("RLX_ROCM_ALLOW_CPU", "1")
    from rlx_rocm.opencl import discovery

    if not any(each.compiles for each in discovery.found()):
        pytest.skip(f"PoCL's compiler does not know this processor: {discovery.NEWER}")
    known = default_host()
    if any(entry.name == "rocm" for entry in known.entries):
        return known
    import rlx_rocm.plugin

    return PluginHost([*known.entries, given_entry(rlx_rocm.plugin)])
