"""Which devices are taken, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import DeviceUnavailableError
from rlx_core.plugins import PluginHost
from rlx_cuda.plugin import rlx_availability

ONE = np.ones(1, np.float32)


@pytest.mark.medium
def test_the_stand_in_has_to_be_asked_for(host: PluginHost) -> None:
    assert [d.target for d in rlx.devices("cuda", host=host)] == ["cuda:0"]
    assert rlx.jit(lambda x: x + x, target="cuda", host=host)(ONE).tolist() == [2.0]


def test_without_the_library_or_a_driver_the_state_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RLX_CUDA_STAND_IN", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert 'pip install "cupy-cuda13x[ctk]"' in str(rlx_availability())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("rlx_cuda.plugin.DRIVERS", (str(tmp_path / "version"),))
    assert "driver is not loaded" in str(rlx_availability())
    (tmp_path / "version").touch()
    assert rlx_availability() is None
    monkeypatch.setattr("rlx_cuda.plugin.DRIVERS", ())
    monkeypatch.setenv("RLX_CUDA_STAND_IN", "1")
    assert rlx_availability() is None


def found(world: Any, options: dict[str, Any] | None = None) -> Any:
    from rlx_cuda import discovery

    return discovery.wanted(options or {})


def test_a_device_may_be_asked_for_by_a_part_of_its_name(world: Any) -> None:
    assert [d.name for d in found(world, {"cuda.device": "h0"})] == ["cuda:0", "cuda:1"]
    with pytest.raises(DeviceUnavailableError, match="no device is called 'h100'") as caught:
        found(world, {"cuda.device": "H100"})
    assert "Fake H0" in str(caught.value)
    assert found(world)[0] is found(world)[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"driver_version": 0}, "there is no driver of NVIDIA's"),
        ({"driver_version": 12080}, r"the driver is for CUDA 12\.8, and the installed CuPy for 13\.2"),
        ({"devices": 0}, "the driver has no device"),
    ],
    ids=["no-driver", "old-driver", "no-device"],
)
def test_a_driver_that_does_not_start_says_why(
    world: Any, monkeypatch: pytest.MonkeyPatch, change: dict[str, int], said: str
) -> None:
    for name, value in change.items():
        monkeypatch.setattr(world, name, value)
    with pytest.raises(DeviceUnavailableError, match=said) as caught:
        found(world)
    assert caught.value.hint


def test_a_gpu_that_is_too_old_is_named(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cupy.cuda import runtime

    properties = runtime.getDeviceProperties
    monkeypatch.setattr(runtime, "getDeviceProperties", lambda n: {**properties(n), "name": b"GTX 1080", "major": 6})
    with pytest.raises(DeviceUnavailableError, match=r"no GPU of compute capability 7\.5 or newer") as caught:
        found(world)
    assert "GTX 1080" in str(caught.value)


def test_a_cupy_for_rocm_is_refused(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "is_hip", True)
    with pytest.raises(DeviceUnavailableError, match="the installed CuPy is built on ROCm") as caught:
        found(world)
    assert "cupy-cuda13x" in str(caught.value)


@pytest.mark.medium
def test_the_door_imports_no_library() -> None:
    code = (
        "import sys, rlx_core, rlx_cuda.plugin as p; before = set(sys.modules)\n"
        "p.rlx_availability(); p.rlx_backends(); p.rlx_options()\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules} & {'cupy', 'cupy_backends', 'ctypes', 'rlx_cuda'}))\n"
        "print([m for m in sys.modules if m.startswith('rlx_cuda.')], len(set(sys.modules) - before))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    imported, modules = out.splitlines()
    assert "cupy" not in imported
    assert modules == "['rlx_cuda.plugin'] 0"
