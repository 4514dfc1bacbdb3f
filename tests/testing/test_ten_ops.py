"""What the laws of a package with ten ops cost, in measures that do not depend on the machine's load.

All samples make 1,497 cases and 58 million calls of functions, which take 16 s of one core of an AMD EPYC (`rlx check`: 24 s).
"""

from __future__ import annotations

import os
import pstats
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
MAX_CASES = 1_700
MAX_CALLS_QUICK = 18_000_000
"""Calls of functions in a run with one sample for each law."""


def laws(folder: Path, *options: str, profile: bool = False) -> str:
    """What a run of the laws over the ten ops prints."""
    profiler = ["-m", "cProfile", "-o", str(folder / "profile")] if profile else []
    path = os.pathsep.join([str(HERE), *(each for each in sys.path if each)])
    command = [sys.executable, *profiler, "-m", "pytest", "--rlx-plugin=ten_ops"]
    ran = subprocess.run(
        [*command, "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--pyargs", "rlx_core.testing", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "RLX_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_laws_try_each_of_ten_ops_a_bounded_number_of_times(tmp_path: Path) -> None:
    (count,) = re.findall(r"(\d+) tests collected", laws(tmp_path, "--collect-only"))
    assert 1_000 < int(count) < MAX_CASES


def test_laws_with_one_sample_call_a_bounded_number_of_functions(tmp_path: Path) -> None:
    said = laws(tmp_path, "--rlx-samples=one", profile=True)
    assert "20 ops, rules and kernels" in said
    calls = pstats.Stats(str(tmp_path / "profile")).total_calls  # type: ignore[attr-defined]
    assert calls < MAX_CALLS_QUICK, f"{calls:,} calls"
