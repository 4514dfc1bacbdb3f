"""The program that times an OpenCL device: it refuses where there is none, and runs on PoCL."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from rlx_core.errors import DeviceUnavailableError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are programs of the checkout, not an installed package

from benchmarks import opencl  # noqa: E402


def test_without_a_device_nothing_is_timed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def devices(target: str) -> None:
        raise DeviceUnavailableError("rocm: no OpenCL driver has a device here")

    monkeypatch.setattr("rlx_core.devices", devices)
    assert opencl.main([]) == 2
    assert "nothing was timed" in capsys.readouterr().out


@pytest.mark.slow
def test_it_says_what_is_asked_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("rlx_rocm") is None or importlib.util.find_spec("pocl_binary_distribution") is None:
        pytest.skip('needs a device: python -m pip install "./plugins/rlx_rocm[pocl]"')
    monkeypatch.setenv("RLX_ROCM_ALLOW_CPU", "1")
    command = [sys.executable, "-m", "benchmarks.opencl", "--rounds", "2", "--elements", "4096"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode == 2:
        pytest.skip(f"PoCL's compiler does not know this processor: {done.stdout}")
    assert done.returncode == 0, done.stderr
    assert "  100 steps" in done.stdout
    assert done.stdout.count("copy ") >= 12
    assert "in a second process" in done.stdout
