"""Which devices are taken, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import rlx_core as rlx
import rlx_rocm.plugin
from rlx_core.errors import DeviceUnavailableError
from rlx_core.plugins import PluginHost
from rlx_rocm.opencl import discovery
from rlx_rocm.plugin import rlx_availability

ONE = np.ones(1, np.float32)


@pytest.mark.medium
def test_a_processor_has_to_be_allowed(host: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLX_ROCM_ALLOW_CPU")
    double = rlx.jit(lambda x: x + x, target="rocm", host=host)
    with pytest.raises(DeviceUnavailableError, match="there is no GPU") as caught:
        double(ONE)
    assert "RLX_ROCM_ALLOW_CPU=1" in str(caught.value)
    allowed = rlx.jit(lambda x: x + x, target="rocm", host=host, config={"options": {"rocm.allow-cpu": True}})
    assert allowed(ONE).tolist() == [2.0]


def test_a_device_may_be_asked_for_by_a_part_of_its_name(host: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLX_ROCM_ALLOW_CPU")
    named = {"options": {"rocm.device": "portable"}}
    assert rlx.jit(lambda x: x + x, target="rocm", host=host, config=named)(ONE).tolist() == [2.0]
    with pytest.raises(DeviceUnavailableError, match="no OpenCL device is called 'radeon 99'"):
        rlx.jit(lambda x: x, target="rocm", host=host, config={"options": {"rocm.device": "radeon 99"}})(ONE)


def test_devices_are_listed(host: PluginHost) -> None:
    there = [d.target for d in rlx.devices("rocm", host=host)]
    assert there == [f"rocm:{number}" for number in range(max(len(there), 1))]


def test_a_pocl_that_does_not_know_this_processor_is_not_taken(
    host: PluginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clang refuses every kernel for the processor `generic`, which is what PoCL calls one newer than its LLVM."""
    known, *_ = (each for each in discovery.found() if each.compiles)
    version = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-generic"
    unknown = discovery.Found(SimpleNamespace(version=version, type=known.device.type), known.facts, 2)
    allowed = {"rocm.allow-cpu": True}
    monkeypatch.setattr(discovery, "found", lambda: (unknown, known))
    assert [d.facts for d in discovery.wanted(allowed)] == [known.facts]
    monkeypatch.setattr(discovery, "found", lambda: (unknown,))
    with pytest.raises(DeviceUnavailableError, match="does not know this processor") as caught:
        discovery.wanted(allowed)
    assert version in str(caught.value)
    assert "apt-get install pocl-opencl-icd" in str(caught.value)


def test_without_the_library_or_a_driver_the_state_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install pyopencl" in str(rlx_availability())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "pyopencl" else None)
    monkeypatch.setattr(rlx_rocm.plugin, "VENDORS", (str(Path(__file__).parent / "nowhere"),))
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert "no OpenCL driver is installed" in str(rlx_availability())


def test_the_door_imports_no_library() -> None:
    code = (
        "import sys, rlx_core, rlx_rocm.plugin as p; p.rlx_availability(); p.rlx_backends(); p.rlx_options()\n"
        "print([m for m in ('pyopencl', 'numpy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() in ("[]", "['numpy']")
