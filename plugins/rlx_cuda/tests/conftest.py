"""The target on what stands for a device: the shared stand-in, which needs a C++ compiler, or a fake CuPy under the real driver.

On a machine with a GPU the same tests run there too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fake_cupy import fake_cupy

from rlx_core.errors import DeviceUnavailableError
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
from rlx_core.testing.shim.compiler import compiler

DRIVEN = ("rlx_cuda.discovery", "rlx_cuda.driver", "rlx_cuda.routines")
"""What imports CuPy, or keeps the devices that it found."""


@pytest.fixture(scope="session")
def cpp() -> None:
    try:
        compiler()
    except DeviceUnavailableError as error:
        pytest.skip(f"{error.message}: {error.hint}")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads what another run compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLX_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def known() -> PluginHost:
    """A host of its own with the target: another remembers that it was unavailable before something stood in for a device."""
    import rlx_cuda.plugin

    others = [entry for entry in default_host().entries if entry.name != "cuda"]
    return PluginHost([*others, given_entry(rlx_cuda.plugin)])


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
