"""Devices of the CuPy driver, and the errors if there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
import rlx_rocm.plugin
from rlx_core.errors import DeviceUnavailableError
from rlx_core.plugins import PluginHost


def wanted(world: Any, name: str = "") -> Any:
    from rlx_rocm.hip import discovery

    return discovery.wanted(name)


def test_a_device_may_be_asked_for_by_its_name_or_its_architecture(world: Any) -> None:
    assert [d.name for d in wanted(world, "instinct")] == ["rocm:0", "rocm:1"]
    assert wanted(world, "gfx942")[0] is wanted(world)[0]
    with pytest.raises(DeviceUnavailableError, match="CuPy sees no device that is called 'radeon'") as caught:
        wanted(world, "radeon")
    assert "Fake Instinct" in str(caught.value)


def test_a_cupy_for_cuda_is_refused(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "is_hip", False)
    with pytest.raises(DeviceUnavailableError, match="the installed CuPy is built on CUDA") as caught:
        wanted(world)
    assert "rlx-rocm[cupy]" in str(caught.value)


def test_a_driver_without_a_device_says_so(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "devices", 0)
    with pytest.raises(DeviceUnavailableError, match="HIP has no device"):
        wanted(world)


@pytest.mark.medium
def test_the_stand_in_has_to_be_asked_for(host: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:
    one = np.ones(1, np.float32)
    assert rlx.jit(lambda x: x + x, target="rocm", host=host)(one).tolist() == [2.0]
    assert rlx.devices("rocm", host=host)[0].target == "rocm:0"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert rlx_rocm.plugin.rlx_availability() is None
    monkeypatch.delenv("RLX_ROCM_STAND_IN")
    assert "pyopencl is not installed" in str(rlx_rocm.plugin.rlx_availability())


def test_cupy_and_amds_driver_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLX_ROCM_STAND_IN", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "cupy" else None)
    monkeypatch.setattr(rlx_rocm.plugin, "KERNEL_DRIVER", __file__)
    assert rlx_rocm.plugin.rlx_availability() is None
    monkeypatch.setattr(rlx_rocm.plugin, "KERNEL_DRIVER", "/nowhere")
    assert "pyopencl is not installed" in str(rlx_rocm.plugin.rlx_availability())
