"""Every plug-in of the tree is cheap to meet: its door, and its backends, import no library of a driver and open none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"
DOORS = sorted(PLUGINS.glob("*/src/*/plugin.py"))

SHARED = {"rlx_gpu"}
"""Libraries of rlx that backends share."""

DRIVERS = ("libOpenCL", "libpocl", "libvulkan", "libwgpu", "libcuda", "libnvrtc", "libamdhip", "Metal.framework")

MET = """
import importlib, json, sys
from pathlib import Path
sys.path.insert(0, {source!r})
import rlx_core, rlx_core.contributions, rlx_core.hooks
before = set(sys.modules)
def new():
    tops = {{name.partition(".")[0] for name in set(sys.modules) - before}} - set(sys.stdlib_module_names)
    return sorted(tops - {{"rlx_core", {name!r}}})
door = importlib.import_module({name!r} + ".plugin")
for hook in ("rlx_availability", "rlx_options", "rlx_backends"):
    found = getattr(door, hook, lambda: None)()
at_door = new()
import rlx_core.pipeline.compile
from rlx_core.emit.backend import DeviceBackend
before = set(sys.modules)
for spec in found or []:
    if isinstance(spec.load, str):
        importlib.import_module(spec.load.partition(":")[0])
maps = Path("/proc/self/maps")
print(json.dumps([at_door, new(), maps.read_text() if maps.exists() else ""]))
"""


def test_there_are_plugins_to_look_at() -> None:
    assert len(DOORS) >= 4


@pytest.mark.medium
@pytest.mark.parametrize("door", DOORS, ids=[door.parent.name for door in DOORS])
def test_a_plugin_is_met_without_its_library_or_a_driver(door: Path) -> None:
    name = door.parent.name
    program = MET.format(source=str(door.parents[1]), name=name)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    at_door, with_backends, maps = json.loads(done.stdout)
    assert at_door == [], "the door imports the standard library and rlx_core"
    assert set(with_backends) <= SHARED, "a backend imports its library when a device is asked for"
    assert not [each for each in DRIVERS if each in maps]
