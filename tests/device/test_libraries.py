"""Libraries of a device's maker: which of several places one is loaded from."""

from __future__ import annotations

import ctypes.util
import os
from pathlib import Path

import pytest

from rlx_core.device.libraries import first_that_loads
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
