"""The target on what stands for a device: the shared stand-in, which needs a C++ compiler, or a fake CuPy under the real driver.

On a machine with a GPU the same tests run there too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fake_cupy import cache_fixture, cpp_fixture, fake_cupy, host_of  # noqa: F401  (fixtures)

from rlx_core.plugins import PluginHost

DRIVEN = ("rlx_cuda.discovery", "rlx_cuda.driver")
"""What imports CuPy, or keeps the devices that it found."""


@pytest.fixture
def known() -> PluginHost:
    import rlx_cuda.plugin

    return host_of("cuda", rlx_cuda.plugin)


@pytest.fixture
def target() -> str:
    return "cuda"


@pytest.fixture
def host(cpp: None, cache: None, known: PluginHost, monkeypatch: pytest.MonkeyPatch) -> PluginHost:
    """A host whose devices are the stand-in."""
    monkeypatch.setenv("RLX_CUDA_STAND_IN", "1")
    return known


@pytest.fixture
def world(cpp: None, cache: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A fake CuPy instead of CuPy, and NVRTC that gives sources back, as long as a test goes on."""
    from rlx_cuda import nvrtc

    def compiled(source: str, architecture: str, options: Any, *, place: str = "cuda") -> nvrtc.Compiled:
        return nvrtc.Compiled(b"fake cubin\n" + source.encode(), {})

    monkeypatch.setattr(nvrtc, "compiled", compiled)
    monkeypatch.setattr(nvrtc, "version", lambda: "0.0")
    monkeypatch.setattr(nvrtc, "architecture_for", lambda capability: f"sm_{capability}")
    monkeypatch.delenv("RLX_CUDA_STAND_IN", raising=False)
    with fake_cupy(DRIVEN) as made:
        yield made


@pytest.fixture
def driven(world: Any, known: PluginHost) -> PluginHost:
    """A host with the real driver on the fake CuPy."""
    return known
