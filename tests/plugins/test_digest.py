"""Stamps of packages: what changes them, and what has none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlx_core.plugins import PluginHost, stamp_of
from rlx_core.plugins.digest import package_stamp


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "stamped_package"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("A = 1\n")
    (folder / "inner" / "part.py").write_text("B = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    package_stamp.cache_clear()
    yield folder
    package_stamp.cache_clear()


def stamp() -> str | None:
    """The stamp as another process would find it."""
    package_stamp.cache_clear()
    return stamp_of(["stamped_package"])


def test_a_stamp_stays_while_nothing_changes(package: Path) -> None:
    assert stamp() is not None
    assert stamp() == stamp()


def edit(folder: Path) -> None:
    (folder / "inner" / "part.py").write_text("B = 22\n")


def touch(folder: Path) -> None:
    os.utime(folder / "__init__.py", ns=(1, 1))


def add(folder: Path) -> None:
    (folder / "inner" / "other.py").write_text("")


def remove(folder: Path) -> None:
    (folder / "inner" / "part.py").unlink()


def rename(folder: Path) -> None:
    (folder / "inner" / "part.py").rename(folder / "inner" / "renamed.py")


@pytest.mark.parametrize("change", [edit, touch, add, remove, rename], ids=lambda f: f.__name__)
def test_any_change_of_a_file_changes_the_stamp(package: Path, change: object) -> None:
    before = stamp()
    assert callable(change)
    change(package)

    assert stamp() not in (None, before)


def test_bytecode_does_not(package: Path) -> None:
    before = stamp()
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "part.pyc").write_bytes(b"x")

    assert stamp() == before


@pytest.mark.parametrize("name", ["", "__main__", "no_such_package_at_all", "lone_module"])
def test_what_is_no_folder_of_files_has_no_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "lone_module.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert stamp_of([name]) is None
    assert stamp_of(["rlx_core", name]) is None


def test_a_host_with_a_plugin_that_is_an_object_has_none() -> None:
    class Acme:
        pass

    host = PluginHost([Acme()])
    host.activate_all()
    assert host.stamp() is None


def test_the_stamp_of_a_host_says_who_is_active() -> None:
    fewer, more = PluginHost([]), PluginHost()
    more.activate_all()

    assert fewer.stamp() == PluginHost([]).stamp()
    assert fewer.stamp() != more.stamp()
