"""CuPy's road on what stands for a GPU: HIP compiled as C++, or a fake CuPy and a fake HIPRTC under the real driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from fake_cupy import fake_cupy

import rlx_rocm.plugin
from rlx_core.errors import DeviceUnavailableError
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
from rlx_core.testing.shim.compiler import compiler

DRIVEN = ("rlx_rocm.hip.discovery", "rlx_rocm.hip.driver")
"""What keeps the devices that it found."""


@pytest.fixture(scope="session")
def cpp() -> None:
    try:
        compiler()
    except DeviceUnavailableError as error:
        pytest.skip(f"{error.message}: {error.hint}")


@pytest.fixture(scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads what another run compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLX_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def known() -> PluginHost:
    """A host of its own with the target: another remembers that it was unavailable before something stood in for a device."""
    others = [entry for entry in default_host().entries if entry.name != "rocm"]
    return PluginHost([*others, given_entry(rlx_rocm.plugin)])


@pytest.fixture
def host(cpp: None, own_cache: None, known: PluginHost, monkeypatch: pytest.MonkeyPatch) -> PluginHost:
    """A host whose devices are the stand-in."""
    monkeypatch.setenv("RLX_ROCM_STAND_IN", "1")
    return known


@pytest.fixture(scope="session")
def fake_hiprtc(cpp: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library with HIPRTC's functions."""
    made = tmp_path_factory.mktemp("hiprtc") / "libhiprtc.so.7"
    made.write_bytes(compiler().shared_object(Path(__file__).with_name("fake_hiprtc.cpp").read_text()))
    return str(made)


@pytest.fixture
def world(own_cache: None, fake_hiprtc: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A fake CuPy instead of CuPy, and a fake HIPRTC, as long as a test goes on."""
    from rlx_rocm.hip import hiprtc

    monkeypatch.setattr(hiprtc, "HIPRTC", evolve(hiprtc.HIPRTC, paths=lambda: iter([fake_hiprtc])))
    monkeypatch.setattr("rlx_rocm.plugin.has_cupy", lambda: True)
    monkeypatch.setenv("RLX_ROCM_ROAD", "cupy")
    monkeypatch.delenv("RLX_ROCM_STAND_IN", raising=False)
    with fake_cupy(DRIVEN, is_hip=True) as made:
        yield made


@pytest.fixture
def driven(world: Any, known: PluginHost) -> PluginHost:
    """A host with the real driver on the fake CuPy."""
    return known
