"""Which adapters are taken, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rlx_core as rlx
import rlx_wgpu.plugin
from rlx_core.errors import DeviceUnavailableError
from rlx_core.plugins import PluginHost
from rlx_wgpu.plugin import rlx_availability

ONE = np.ones(1, np.float32)


@pytest.mark.medium
def test_a_processor_has_to_be_allowed(host: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLX_WGPU_ALLOW_CPU")
    from rlx_wgpu import discovery

    if not all(each.is_cpu for each in discovery.found()):
        pytest.skip("there is a GPU")
    double = rlx.jit(lambda x: x + x, target="wgpu", host=host)
    with pytest.raises(DeviceUnavailableError, match="there is no GPU") as caught:
        double(ONE)
    assert "RLX_WGPU_ALLOW_CPU=1" in str(caught.value)
    allowed = rlx.jit(lambda x: x + x, target="wgpu", host=host, config={"options": {"wgpu.allow-cpu": True}})
    assert allowed(ONE).tolist() == [2.0]


@pytest.mark.medium
def test_an_adapter_may_be_asked_for_by_a_part_of_its_name(host: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:
    name = rlx.devices("wgpu", host=host)[0].name
    monkeypatch.delenv("RLX_WGPU_ALLOW_CPU")
    named = {"options": {"wgpu.device": name[:6]}}
    assert rlx.jit(lambda x: x + x, target="wgpu", host=host, config=named)(ONE).tolist() == [2.0]
    with pytest.raises(DeviceUnavailableError, match="no adapter is called 'radeon 99'"):
        rlx.jit(lambda x: x, target="wgpu", host=host, config={"options": {"wgpu.device": "radeon 99"}})(ONE)


def test_devices_are_listed_once_each(host: PluginHost) -> None:
    found = rlx.devices("wgpu", host=host)
    assert [d.target for d in found] == [f"wgpu:{i}" for i in range(len(found))]


def test_limits_are_asked_for_and_granted(host: PluginHost) -> None:
    """Without asking, a device has what every device has, however much more the adapter could."""
    device = rlx.device_put(ONE, "wgpu:0", host=host).device
    granted = device.driver.device.limits
    bindings = granted["max-storage-buffers-per-shader-stage"] - 1
    assert granted["max-storage-buffer-binding-size"] * bindings >= device.facts.largest_buffer
    assert granted["max-compute-workgroup-storage-size"] == device.facts.shared_nbytes
    assert granted["max-compute-invocations-per-workgroup"] >= device.facts.group_size


def test_without_the_library_a_loader_or_a_driver_the_state_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install wgpu" in str(rlx_availability())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "wgpu" else None)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(rlx_wgpu.plugin, "DRIVERS", (str(tmp_path),))
    monkeypatch.setattr(rlx_wgpu.plugin, "LOADERS", (str(tmp_path),))
    assert "there is no Vulkan loader" in str(rlx_availability())
    (tmp_path / "libvulkan.so.1").touch()
    assert "no Vulkan driver is installed" in str(rlx_availability())
    (tmp_path / "lvp_icd.json").touch()
    assert rlx_availability() is None


@pytest.mark.medium
def test_the_door_imports_no_library() -> None:
    code = (
        "import sys, rlx_core, rlx_wgpu.plugin as p; p.rlx_availability(); p.rlx_backends(); p.rlx_options()\n"
        "print([m for m in ('wgpu', 'numpy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() in ("[]", "['numpy']")


PRINTED = """
import sys
sys.modules["wgpu"] = None
import rlx_wgpu.plugin
rlx_wgpu.plugin.DRIVERS = rlx_wgpu.plugin.LOADERS = ()
from rlx_core.cli.main import app
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
known = default_host()
host = known if any(e.name == "wgpu" for e in known.entries) else PluginHost([*known.entries, given_entry(rlx_wgpu.plugin)])
app(["compile", "--op", "exp f32[4]", "--target", "wgpu", "--emit", "wgsl"], obj=lambda policy: host)
"""


@pytest.mark.medium
def test_kernels_are_printed_without_wgpu_or_a_driver() -> None:
    out = subprocess.run([sys.executable, "-c", PRINTED], capture_output=True, text=True, check=True).stdout
    assert "@compute @workgroup_size" in out


def test_the_oldest_library_is_the_one_that_the_project_asks_for() -> None:
    from rlx_wgpu.plugin import OLDEST

    project = Path(__file__).parents[1] / "pyproject.toml"
    assert f'"wgpu>={OLDEST}"' in project.read_text()
