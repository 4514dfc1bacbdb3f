"""Libraries of a device's maker: which of several places one is loaded from."""

from __future__ import annotations

import ctypes.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlx_core.device.libraries import first_that_loads, imported
from rlx_core.errors import DeviceUnavailableError


@pytest.mark.skipif(os.name != "posix", reason="the library of C is called otherwise")
def test_the_first_that_loads_is_taken(tmp_path: Path) -> None:
    known = ctypes.util.find_library("c") or "libc.so.6"
    assert first_that_loads([str(tmp_path / "libno.so"), known], "x", "pip install x")._name == known


def test_where_it_was_looked_for_is_said(tmp_path: Path) -> None:
    with pytest.raises(DeviceUnavailableError, match="x is not installed") as caught:
        first_that_loads([str(tmp_path / f"lib{n}.so") for n in range(9)], "x", "pip install x")
    assert [fact.label for fact in caught.value.facts] == ["tried"] * 3
    assert caught.value.hint == "pip install x"


@pytest.mark.skipif(os.name != "posix", reason="what is no library is told otherwise")
def test_what_lies_beside_it_is_loaded_before(tmp_path: Path) -> None:
    (tmp_path / "libx-more.so.1").write_bytes(b"no library")
    with pytest.raises(DeviceUnavailableError, match="x is not installed") as caught:
        first_that_loads([str(tmp_path / "libx.so")], "x", "pip install x", "libx-more.so*")
    assert "libx-more.so.1: " in str(caught.value)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Has a package of this source and version lie where Python looks."""

    def lay(source: str, version: str = "") -> None:
        (tmp_path / "acme_gpu.py").write_text(source)
        if version:
            (tmp_path / "acme_gpu-1.dist-info").mkdir()
            (tmp_path / "acme_gpu-1.dist-info" / "METADATA").write_text(f"Name: acme_gpu\nVersion: {version}\n")

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "acme_gpu", raising=False)
    yield lay
    sys.modules.pop("acme_gpu", None)


def asked() -> object:
    return imported("acme_gpu", "acme", install="pip install acme_gpu", needs=("Device",), oldest="0.30")


@pytest.mark.parametrize("version", ["", "0.30", "0.100.2", "1.0rc1"])
def test_a_package_that_is_whole_and_new_enough_is_imported(package: Callable[..., None], version: str) -> None:
    package("Device = 7", version)
    assert asked().Device == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise RuntimeError('half there')", "half there"),
        ("raise OSError('libvulkan.so: no such file')", "libvulkan"),
        ("import acme_driver", "acme_driver"),
        ("raise SystemExit(3)", "SystemExit"),
        ("Adapter = 7", "Device"),
        ("Device = ", "SyntaxError"),
    ],
)
def test_a_package_that_is_broken_is_a_typed_error_with_what_it_said(
    package: Callable[..., None], source: str, said: str
) -> None:
    package(source)
    with pytest.raises(DeviceUnavailableError, match="acme: acme_gpu cannot be imported") as caught:
        asked()
    assert said in str(caught.value)
    assert caught.value.hint == "pip install acme_gpu"


def test_a_package_that_is_too_old_is_not_imported(package: Callable[..., None]) -> None:
    package("import os; os.abort()", "0.29.9")
    with pytest.raises(
        DeviceUnavailableError, match=r"acme_gpu 0\.29\.9 is too old; it takes 0\.30 or newer"
    ) as caught:
        asked()
    assert caught.value.hint == "pip install acme_gpu --upgrade"


def test_a_package_that_is_not_there_or_has_no_memory_says_so(package: Callable[..., None]) -> None:
    with pytest.raises(DeviceUnavailableError, match="acme_gpu cannot be imported"):
        asked()
    package("raise MemoryError")
    with pytest.raises(MemoryError):
        asked()
