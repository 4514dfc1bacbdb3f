"""The CuPy driver on a stand-in for a GPU: HIP compiled as C++, or a fake CuPy and a fake HIPRTC under the real driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from fake_cupy import cache_fixture, cpp_fixture, fake_cupy, host_of  # noqa: F401  (fixtures)

import rlx_rocm.plugin
from rlx_core.plugins import PluginHost
from rlx_gpu.testing.shim.compiler import compiler

DRIVEN = ("rlx_rocm.hip.discovery", "rlx_rocm.hip.driver")
"""What keeps the devices that it found."""


@pytest.fixture
def known() -> PluginHost:
    return host_of("rocm", rlx_rocm.plugin)


@pytest.fixture
def host(cpp: None, cache: None, known: PluginHost, monkeypatch: pytest.MonkeyPatch) -> PluginHost:
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
def world(cache: None, fake_hiprtc: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A fake CuPy instead of CuPy, and a fake HIPRTC, as long as a test goes on."""
    from rlx_rocm.hip import hiprtc

    monkeypatch.setattr(hiprtc, "HIPRTC", evolve(hiprtc.HIPRTC, paths=lambda: iter([fake_hiprtc])))
    monkeypatch.setattr("rlx_rocm.plugin.has_cupy", lambda: True)
    monkeypatch.setenv("RLX_ROCM_DRIVER", "cupy")
    monkeypatch.delenv("RLX_ROCM_STAND_IN", raising=False)
    with fake_cupy(DRIVEN, is_hip=True) as made:
        yield made


@pytest.fixture
def driven(world: Any, known: PluginHost) -> PluginHost:
    """A host with the real driver on the fake CuPy."""
    return known
