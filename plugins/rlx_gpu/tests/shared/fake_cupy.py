"""The CuPy of `fakes` in place of CuPy, and what is tested of each driver on it: programs, lost devices, times."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import DeviceLostError, DeviceUnavailableError
from rlx_core.pipeline.profile import profiled
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
from rlx_gpu.testing.shim.compiler import compiler

__all__ = [
    "X",
    "cache_fixture",
    "cpp_fixture",
    "fake_cupy",
    "host_of",
    "require_a_lost_device_is_an_error",
    "require_every_step_is_timed",
    "right",
    "steps",
    "words",
]

X = np.linspace(-2, 2, 48, dtype=np.float32).reshape(6, 8)

FAKES = str(Path(__file__).with_name("fakes"))
_versions = itertools.count()


@contextmanager
def fake_cupy(driven: Sequence[str], *, is_hip: bool = False) -> Iterator[Any]:
    """Its world: what was asked of the device, and how it is made to fail.

    Args:
        driven: Modules that import CuPy, or keep the devices that they found; they are imported anew.
        is_hip: Whether it is CuPy's build for ROCm.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FAKES)
        _forget(patch, driven)
        import cupy.cuda.world

        # Programs are cached by what their device is, and this world's are nobody else's.
        patch.setattr(cupy, "__version__", f"0.{next(_versions)}")
        cupy.cuda.world.is_hip = is_hip
        yield cupy.cuda.world
        _forget(patch, driven)


def _forget(patch: pytest.MonkeyPatch, driven: Sequence[str]) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] in ("cupy", "cupyx") or name in driven:
            patch.delitem(sys.modules, name)
    for name in driven:  # `from package import module` looks at the package first
        package, _, module = name.rpartition(".")
        if package in sys.modules:
            patch.delattr(sys.modules[package], module, raising=False)


@pytest.fixture(scope="session", name="cpp")
def cpp_fixture() -> None:
    try:
        compiler()
    except DeviceUnavailableError as error:
        pytest.skip(f"{error.message}: {error.hint}")


@pytest.fixture(scope="session", name="cache")
def cache_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads what another run compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLX_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def host_of(target: str, plugin: Any) -> PluginHost:
    """A host of its own with the target: another remembers that it was unavailable before something stood in for a device."""
    others = [entry for entry in default_host().entries if entry.name != target]
    return PluginHost([*others, given_entry(plugin)])


def steps(x: Any) -> Any:
    """A program of several launches."""
    y = x - rlx.sum(x, axis=0)
    return y / rlx.sum(y * y, axis=1, keepdims=True) + rlx.max(y)


def right(x: np.ndarray) -> np.ndarray:
    y = x - x.sum(0)
    return y / (y * y).sum(1, keepdims=True) + y.max()


def words(world: Any, call: Any) -> list[str]:
    """What a call asked the fake device for."""
    before = len(world.records)
    call()
    return [word for word, _ in world.records[before:]]


def require_a_lost_device_is_an_error(world: Any, f: Any, place: str) -> None:
    """A call after the device was lost says so with the driver's number, and one after it came back computes."""
    f(X)
    world.lost = 719
    try:
        with pytest.raises(DeviceLostError, match=f"{place}: the device does not answer") as caught:
            f(X)
        assert "719" in str(caught.value)
    finally:
        world.lost = None
    np.testing.assert_allclose(f(X), right(X), rtol=2e-5)


def require_every_step_is_timed(f: Any) -> None:
    f(X)
    with profiled() as profile:
        f(X)
    assert [t.seconds > 0 for t in profile.times] == [True] * len(f.executables[0].lir.steps)
