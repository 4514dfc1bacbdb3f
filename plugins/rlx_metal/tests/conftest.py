"""The target with the processor in place of a GPU, and the real driver on a fake `Metal`: these tests need no Mac."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from fake_metal import FakeDevice, modules

import rlx_metal.plugin
from rlx_core.errors import DeviceUnavailableError
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
from rlx_gpu.testing.shim.compiler import compiler


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads what another run compiled; and nothing runs without a C++ compiler."""
    try:
        compiler()
    except DeviceUnavailableError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLX_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def target() -> str:
    return "metal"


@pytest.fixture
def host(cache: None, monkeypatch: pytest.MonkeyPatch) -> PluginHost:
    """A host with the target, for which the processor stands in."""
    monkeypatch.setenv("RLX_METAL_STAND_IN", "1")
    return with_metal()


OWN = ("discovery", "driver", "commands", "archives")
"""The modules that import `Metal`, or remember what they found there."""


@pytest.fixture
def device(cache: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    """The one device of a fake `Metal`, which everybody imports anew for the test."""
    monkeypatch.delenv("RLX_METAL_STAND_IN", raising=False)
    monkeypatch.setattr(rlx_metal.plugin, "sys", SimpleNamespace(platform="darwin"))
    made = FakeDevice()
    for name, module in modules(made).items():
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    before = {name: sys.modules.pop(f"rlx_metal.{name}", None) for name in OWN}
    for name in OWN:
        vars(rlx_metal).pop(name, None)
    yield made
    for name, module in before.items():
        sys.modules.pop(f"rlx_metal.{name}", None)
        vars(rlx_metal).pop(name, None)
        if module is not None:
            sys.modules[f"rlx_metal.{name}"] = vars(rlx_metal)[name] = module


def with_metal() -> PluginHost:
    """A host of its own, because another remembers that the target was unavailable before the processor stood in."""
    others = [entry for entry in default_host().entries if entry.name != "metal"]
    return PluginHost([*others, given_entry(rlx_metal.plugin)])
