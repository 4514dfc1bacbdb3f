"""Selection of the driver for AMD GPUs, and the errors if a driver has no device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlx_core.cli.main import app
from rlx_core.errors import ConfigError, DeviceUnavailableError
from rlx_core.pipeline.config.structure import configuration_of
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
from rlx_rocm import drivers, plugin
from rlx_rocm.hip import discovery as hip

NOTHING = DeviceUnavailableError("rocm: no OpenCL driver has a device here", hint="install one")


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of whoever runs the tests."""
    for name in ("RLX_ROCM_ROAD", "RLX_ROCM_DRIVER", "RLX_ROCM_STAND_IN", "RLX_ROCM_DEVICE"):
        monkeypatch.delenv(name, raising=False)


def opencl(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    """OpenCL's devices, or what it raises."""

    def by_opencl(options: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(drivers, "_by_opencl", by_opencl)


def test_opencls_devices_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl(monkeypatch, ("a GPU",))
    monkeypatch.setattr(hip, "wanted", lambda name: ("by CuPy", name))
    assert drivers.wanted({}) == ("a GPU",)
    assert drivers.wanted({"rocm.driver": "opencl"}) == ("a GPU",)
    assert drivers.wanted({"rocm.driver": "cupy", "rocm.device": "MI300"}) == ("by CuPy", "mi300")


def test_auto_selects_cupy_if_opencl_has_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl(monkeypatch, NOTHING)
    monkeypatch.setattr(hip, "wanted", lambda name: ("by CuPy", name))
    assert drivers.wanted({}) == ("by CuPy", "")
    with pytest.raises(DeviceUnavailableError, match="no OpenCL driver"):
        drivers.wanted({"rocm.driver": "opencl"})


def test_where_neither_has_one_both_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl(monkeypatch, NOTHING)
    monkeypatch.setitem(sys.modules, "cupy", None)
    hip.found.cache_clear()
    with pytest.raises(DeviceUnavailableError, match="no OpenCL driver has a device here") as caught:
        drivers.wanted({})
    assert "by CuPy" in str(caught.value)
    assert "cupy cannot be imported" in str(caught.value)
    with pytest.raises(DeviceUnavailableError, match="cupy cannot be imported") as caught:
        drivers.wanted({"rocm.driver": "cupy"})
    assert "rlx-rocm[cupy]" in str(caught.value)


def test_unknown_driver_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"rocm\.driver: 'vulkan' is none of auto, opencl, cupy"):
        drivers.wanted({"rocm.driver": "vulkan"})


def test_former_names_are_errors_with_the_new_name(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {option.name: option for option in plugin.rlx_options()}
    with pytest.raises(ConfigError, match=r"renamed: \"rocm\.driver\" ="):
        configuration_of({"options": {"rocm.road": "cupy"}}, known, {})
    monkeypatch.setenv("RLX_ROCM_ROAD", "cupy")
    with pytest.raises(ConfigError, match="RLX_ROCM_DRIVER=cupy"):
        drivers.wanted({})


def test_hip_is_printed_on_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_ROCM_DRIVER", "cupy")
    monkeypatch.setattr("rlx_rocm.plugin.rlx_availability", lambda: "nothing is installed")
    others = [entry for entry in default_host().entries if entry.name != "rocm"]
    known = PluginHost([*others, given_entry(plugin)])
    words = ["compile", "--op", "softmax f32[4,64]", "--target", "rocm", "--emit"]
    done = CliRunner().invoke(app, [*words, "hip"], obj=lambda policy: known)
    assert done.exit_code == 0, done.output
    assert "__global__ void __launch_bounds__(" in done.output
    monkeypatch.setenv("RLX_ROCM_DRIVER", "opencl")
    done = CliRunner().invoke(app, [*words, "opencl"], obj=lambda policy: known)
    assert done.exit_code == 0, done.output
    assert "__kernel" in done.output


def test_the_oldest_library_is_the_one_that_the_project_asks_for() -> None:
    from rlx_rocm.plugin import OLDEST

    project = Path(__file__).parents[1] / "pyproject.toml"
    assert f'"pyopencl>={OLDEST}"' in project.read_text()
