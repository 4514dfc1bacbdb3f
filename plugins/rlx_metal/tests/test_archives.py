"""Pipelines that are kept between processes: on the fake `Metal`, whose archives are files that name functions."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_metal import ARCHIVE, FakeDevice
from test_driver import X, driver, host, on

import rlx_core as rlx
from rlx_core.device.driver import At
from rlx_core.errors import KernelBuildError
from rlx_core.plugins import PluginHost
from rlx_core.system.disk import DiskCache

__all__ = ["driver", "host"]

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void rlx_one(device uint* to [[buffer(0)]], uint own [[thread_index_in_threadgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
  to[own] = 1u;
}
"""


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DiskCache:
    """What devices made, in a cache that nothing was written to."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "kept"))
    return DiskCache(tmp_path / "kept" / "objects")


def launched(driver: Any, module: Any) -> np.ndarray:
    buffer, found = driver.allocate(128), np.empty(32, np.uint32)
    driver.submit([driver.launch(module, "rlx_one", 1, 32, [At(buffer, 0)])])
    driver.read(buffer, 0, found)
    return found


def test_a_pipeline_is_taken_from_the_archive_and_compiled_once(driver: Any, device: FakeDevice) -> None:
    first = driver.build(SOURCE)
    binary = driver.binary_of(first)
    assert launched(driver, first).tolist() == [1] * 32
    assert device.compiled.count("rlx_one") == 1
    second = driver.build(SOURCE, binary)
    assert launched(driver, second).tolist() == [1] * 32
    assert device.compiled.count("rlx_one") == 1


@pytest.mark.parametrize("binary", [b"", b"not an archive", b"\xff\x00" * 50], ids=["empty", "other", "bytes"])
def test_a_corrupt_archive_is_a_typed_error(driver: Any, binary: bytes) -> None:
    with pytest.raises(KernelBuildError, match="metal:0: a stale archive") as caught:
        driver.build(SOURCE, binary)
    assert "invalid file" in str(caught.value)


def test_an_archive_of_other_functions_is_passed_over(driver: Any, device: FakeDevice) -> None:
    module = driver.build(SOURCE, f"{ARCHIVE}\nrlx_other".encode())
    assert launched(driver, module).tolist() == [1] * 32
    assert device.compiled.count("rlx_one") == 1


def test_where_metal_makes_no_archives_nothing_is_kept_and_the_log_says_so(
    driver: Any, device: FakeDevice, caplog: pytest.LogCaptureFixture
) -> None:
    device.keeps_pipelines = False
    with caplog.at_level(logging.INFO, "rlx.cache"):
        assert driver.binary_of(driver.build(SOURCE)) is None
    assert "metal:0: no archive is kept: archives are not supported" in caplog.text


def test_a_folder_that_is_gone_costs_only_what_would_be_kept(driver: Any, caplog: pytest.LogCaptureFixture) -> None:
    first = driver.build(SOURCE)
    binary = driver.binary_of(first)
    shutil.rmtree(driver._archives._folder)
    with pytest.raises(KernelBuildError, match="metal:0: no file for an archive"):
        driver.build(SOURCE, binary)
    with caplog.at_level(logging.INFO, "rlx.cache"):
        assert driver.binary_of(driver.build(SOURCE)) is None
    assert "no archive is kept" in caplog.text


def double(x: Any) -> Any:
    return rlx.exp(x) * 2


def test_a_second_program_compiles_no_pipeline(entries: DiskCache, host: PluginHost, device: FakeDevice) -> None:
    on(host, double)(X)
    before = len(device.compiled)
    again = on(host, double)
    np.testing.assert_allclose(again(X), np.exp(X) * 2, rtol=1e-6)
    assert len(device.compiled) == before
    assert again.executables[0].report.code == "cached"


def test_an_archive_that_metal_refuses_is_thrown_away_and_the_log_says_so(
    entries: DiskCache, host: PluginHost, device: FakeDevice, caplog: pytest.LogCaptureFixture
) -> None:
    on(host, double)(X)
    spoilt = [key for key in entries.keys() if (entries.get(key) or b"").startswith(ARCHIVE.encode())]  # noqa: SIM118
    assert spoilt
    for key in spoilt:
        entries.put(key, b"written by another system")
    with caplog.at_level(logging.INFO, "rlx.cache"):
        np.testing.assert_allclose(on(host, double)(X), np.exp(X) * 2, rtol=1e-6)
    assert "metal:0: compiled again, metal:0: a stale archive" in caplog.text
    assert all((entries.get(key) or b"").startswith(ARCHIVE.encode()) for key in spoilt)
