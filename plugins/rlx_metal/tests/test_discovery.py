"""Which devices are taken, what is said where there is none, and what works without one."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from fake_metal import FakeDevice, modules

import rlx_core as rlx
from rlx_core.errors import DeviceUnavailableError
from rlx_core.plugins import PluginHost
from rlx_metal.plugin import rlx_availability


def test_the_processor_stands_in_where_it_is_told_to(host: PluginHost) -> None:
    assert [(d.target, d.name) for d in rlx.devices("metal", host=host)] == [("metal:0", "metal on this processor")]
    ones = np.ones(3, np.float32)
    assert rlx.jit(lambda x: x + x, target="metal", host=host)(ones).tolist() == [2.0] * 3


def test_a_mac_has_its_own_devices(device: FakeDevice) -> None:
    from rlx_metal.discovery import wanted

    (found,) = wanted({})
    assert (found.name, found.facts.name, found.facts.subgroup) == ("metal:0", "Apple Fake", 32)
    assert wanted({})[0] is found
    assert found.driver.facts is found.facts


def test_a_mac_without_a_device_says_so(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Metal", modules(None)["Metal"])
    from rlx_metal.discovery import wanted

    with pytest.raises(DeviceUnavailableError, match="macOS has no Metal device here"):
        wanted({})


def test_without_macos_or_pyobjc_the_state_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLX_METAL_STAND_IN", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert str(rlx_availability()).startswith("Metal is a part of macOS, and this is linux")
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install pyobjc-framework-Metal" in str(rlx_availability())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert rlx_availability() is None
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("RLX_METAL_STAND_IN", "1")
    assert rlx_availability() is None


def test_the_door_imports_no_library() -> None:
    code = (
        "import sys, rlx_core, rlx_metal.plugin as p; p.rlx_availability(); p.rlx_backends(); p.rlx_options()\n"
        "print([m for m in ('Metal', 'objc', 'rlx_core.testing', 'numpy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() in ("[]", "['numpy']")


PRINTED = """
import os, sys
os.environ.pop("RLX_METAL_STAND_IN", None)
sys.modules["Metal"] = None
import rlx_metal.plugin
from rlx_core.cli.main import app
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
known = default_host()
host = known if any(e.name == "metal" for e in known.entries) else PluginHost([*known.entries, given_entry(rlx_metal.plugin)])
app(["compile", "--op", "exp f32[4]", "--target", "metal", "--emit", "msl"], obj=lambda policy: host)
"""


@pytest.mark.medium
def test_kernels_are_printed_without_a_mac() -> None:
    out = subprocess.run([sys.executable, "-c", PRINTED], capture_output=True, text=True, check=True).stdout
    assert "kernel void" in out
