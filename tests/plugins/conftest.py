"""Plugins to test with: as source installed into a directory, or as small objects."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from rlx_core.contributions import OpSpec
from rlx_core.hooks import hookimpl
from rlx_core.plugins import PluginEntry, PluginHost, PluginOrigin, PluginPolicy

HEADER = "from rlx_core.hooks import hookimpl\nfrom rlx_core.contributions import *\n"


class Site:
    """A directory that looks like site-packages: modules, and the metadata of their distributions."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def install(
        self,
        name: str,
        source: str = "",
        *,
        distribution: str | None = None,
        version: str = "1.0",
        requires: tuple[str, ...] = (),
        when: tuple[str, ...] = (),
        module: str | None = None,
    ) -> str:
        """Install a distribution with one plugin; returns the name of its module."""
        distribution = distribution or f"{name}-rlx"
        module = module or f"{distribution.replace('-', '_')}_plugin"
        (self.path / f"{module}.py").write_text(HEADER + textwrap.dedent(source))
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {distribution}", f"Version: {version}"]
        lines += [f"Requires-Dist: {each}" for each in requires]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        points = ["[rlx.plugins]", f"{name} = {module}"]
        if when:
            points += ["[rlx.when]", *(f"{condition} = {module}" for condition in when)]
        (info / "entry_points.txt").write_text("\n".join(points) + "\n")
        return module

    def settle(self) -> None:
        """Pretend that the directory was written a minute ago, so that an index of it may be remembered."""
        for place in (self.path, *self.path.glob("*.dist-info/*")):
            os.utime(place, (place.stat().st_mtime - 60,) * 2)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An empty site directory on `sys.path`, and a cache directory of its own."""
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("RLX_PLUGINS_BLOCK", raising=False)
    monkeypatch.delenv("RLX_PLUGINS_ALLOW", raising=False)
    before = set(sys.modules)
    yield Site(directory)
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(directory) in str(sys.modules[name].__file__):
            del sys.modules[name]


def module_with(name: str, **hooks: Callable[[], object]) -> ModuleType:
    """A module made in memory whose functions are hook implementations."""
    module = ModuleType(name)
    for hook, function in hooks.items():
        setattr(module, hook, hookimpl(function))
    return module


def op_plugin(*names: str) -> ModuleType:
    """A plugin that contributes ops of these names."""
    return module_with("ops_of", rlx_ops=lambda: [OpSpec(name, "math:exp") for name in names])


def entry(name: str, plugin: object = None, **fields: object) -> PluginEntry:
    """An entry for a plugin at hand, in a distribution of its own."""
    values = {"distribution": f"{name}-rlx", "version": "1.0", "plugin": plugin, **fields}
    return PluginEntry(name, **values)  # type: ignore[arg-type]


def host_of(*entries: PluginEntry, **policy: object) -> PluginHost:
    """A host of just these plugins; rlx's own ops take part only if one of them stands in for them."""
    own = any(each.origin is PluginOrigin.BUILTIN for each in entries)
    return PluginHost(entries, policy=PluginPolicy.of(**policy), builtin=own)  # type: ignore[arg-type]


@pytest.fixture
def make() -> SimpleNamespace:
    """The helpers above; a fixture, because test modules cannot import one another."""
    return SimpleNamespace(module=module_with, ops=op_plugin, entry=entry, host=host_of)
