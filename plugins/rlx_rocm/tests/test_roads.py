"""Which of the two roads is taken, and what is said where one is closed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlx_core.cli.main import app
from rlx_core.errors import ConfigError, DeviceUnavailableError
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
from rlx_rocm import plugin, roads
from rlx_rocm.hip import discovery as hip

NOTHING = DeviceUnavailableError("rocm: no OpenCL driver has a device here", hint="install one")


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of whoever runs the tests."""
    for name in ("RLX_ROCM_ROAD", "RLX_ROCM_STAND_IN", "RLX_ROCM_DEVICE"):
        monkeypatch.delenv(name, raising=False)


def opencl(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    """OpenCL's devices, or what it raises."""

    def by_opencl(options: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(roads, "_by_opencl", by_opencl)


def test_opencls_devices_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl(monkeypatch, ("a GPU",))
    monkeypatch.setattr(hip, "wanted", lambda name: ("by CuPy", name))
    assert roads.wanted({}) == ("a GPU",)
    assert roads.wanted({"rocm.road": "opencl"}) == ("a GPU",)
    assert roads.wanted({"rocm.road": "cupy", "rocm.device": "MI300"}) == ("by CuPy", "mi300")


def test_cupys_are_taken_where_opencl_has_none_and_no_road_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl(monkeypatch, NOTHING)
    monkeypatch.setattr(hip, "wanted", lambda name: ("by CuPy", name))
    assert roads.wanted({}) == ("by CuPy", "")
    with pytest.raises(DeviceUnavailableError, match="no OpenCL driver"):
        roads.wanted({"rocm.road": "opencl"})


def test_where_neither_has_one_both_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl(monkeypatch, NOTHING)
    monkeypatch.setitem(sys.modules, "cupy", None)
    hip.found.cache_clear()
    with pytest.raises(DeviceUnavailableError, match="no OpenCL driver has a device here") as caught:
        roads.wanted({})
    assert "by CuPy" in str(caught.value)
    assert "cupy cannot be imported" in str(caught.value)
    with pytest.raises(DeviceUnavailableError, match="cupy cannot be imported") as caught:
        roads.wanted({"rocm.road": "cupy"})
    assert "rlx-rocm[cupy]" in str(caught.value)


def test_a_road_is_one_of_three() -> None:
    with pytest.raises(ConfigError, match=r"rocm\.road: 'vulkan' is none of auto, opencl, cupy"):
        roads.wanted({"rocm.road": "vulkan"})


def test_hip_is_printed_on_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_ROCM_ROAD", "cupy")
    monkeypatch.setattr("rlx_rocm.plugin.rlx_availability", lambda: "nothing is installed")
    others = [entry for entry in default_host().entries if entry.name != "rocm"]
    known = PluginHost([*others, given_entry(plugin)])
    words = ["compile", "--op", "softmax f32[4,64]", "--target", "rocm", "--emit"]
    done = CliRunner().invoke(app, [*words, "hip"], obj=lambda policy: known)
    assert done.exit_code == 0, done.output
    assert "__global__ void __launch_bounds__(" in done.output
    monkeypatch.setenv("RLX_ROCM_ROAD", "opencl")
    done = CliRunner().invoke(app, [*words, "opencl"], obj=lambda policy: known)
    assert done.exit_code == 0, done.output
    assert "__kernel" in done.output


def test_the_oldest_library_is_the_one_that_the_project_asks_for() -> None:
    from rlx_rocm.plugin import OLDEST

    project = Path(__file__).parents[1] / "pyproject.toml"
    assert f'"pyopencl>={OLDEST}"' in project.read_text()
