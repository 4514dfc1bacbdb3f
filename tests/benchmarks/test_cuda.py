"""The program that times an NVIDIA GPU: it refuses where there is none, and its cases run on the stand-in."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlx_core.errors import DeviceUnavailableError, OutOfMemoryError

shim = pytest.importorskip("rlx_gpu.testing.shim.compiler", reason="it runs on a stand-in: rlx-gpu is not installed")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are programs of the checkout, not an installed package

from benchmarks import cuda  # noqa: E402


def test_without_a_device_nothing_is_timed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def devices(target: str) -> None:
        raise DeviceUnavailableError("cuda: there is no driver of NVIDIA's")

    monkeypatch.setattr("rlx_core.devices", devices)
    assert cuda.main([]) == 2
    assert "nothing was timed" in capsys.readouterr().out


def test_every_kind_of_case_is_there_with_its_goal() -> None:
    cases = cuda.cases(1)
    assert {c.name.split()[0] for c in cases} == {"chain", "softmax", "layer", "RMS", "product", "attention"}
    assert len({c.name for c in cases}) == len(cases)
    assert all(bool(c.nbytes) != bool(c.flops) for c in cases)


def test_a_case_that_fails_is_a_row_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    def timed(case: cuda.CudaCase, *_: object) -> cuda.ResultRow:
        if "of 512" in case.name:
            raise OutOfMemoryError("cuda:0: the device has no memory left")
        return cuda.ResultRow(case.name, 1.0, None, None, case.goal, "")

    monkeypatch.setattr(cuda, "timed", timed)
    monkeypatch.setattr(cuda.rlx, "devices", lambda _: ["a device"])
    path = tmp_path / "rows.json"
    assert cuda.main(["--json", str(path), "softmax"]) == 1
    rows = json.loads(path.read_text())
    assert [row["name"] for row in rows if row["failure"]] == [row["name"] for row in rows if "of 512" in row["name"]]
    assert len(rows) > 1
    assert "OutOfMemoryError: cuda:0: the device has no memory left" in capsys.readouterr().out


def test_another_result_than_the_peers_is_a_failure() -> None:
    case = next(c for c in cuda.cases(1) if c.dtype == "f32")
    expected = np.ones(4, np.float32)
    cuda.expect_close(expected, expected, case)
    for value in (1.1, np.nan):
        with pytest.raises(cuda.DifferenceError, match="differ from PyTorch's"):
            cuda.expect_close(np.full(4, value, np.float32), expected, case)


@pytest.mark.slow
def test_cases_run_on_the_stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if importlib.util.find_spec("rlx_cuda") is None:
        pytest.skip("needs rlx-cuda: python -m pip install --no-deps -e plugins/rlx_cuda")
    try:
        shim.compiler()
    except DeviceUnavailableError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    monkeypatch.setenv("RLX_CUDA_STAND_IN", "1")
    names = ["chain", "of 512", "product bf16 1024", "head 64, 1024"]  # also with what follows, and backward
    command = [sys.executable, "-m", "benchmarks.cuda", "--scale", "512", "--json", str(tmp_path / "rows.json"), *names]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "this is the stand-in" in done.stdout
    assert (tmp_path / "rows.json").read_text().count('"name"') == 9
