"""Models with bytes and fields changed give a model or a typed error; `make fuzz-onnx` tries 200,000."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("count", [100, pytest.param(4000, marks=pytest.mark.slow)])
def test_changed_models_are_read_or_refused(count: int) -> None:
    """In a process of its own, because what it looks for is also the end of that process."""
    program = Path(__file__).with_name("onnx_mutations.py")
    shared = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run(
        [sys.executable, str(program), str(count), "11"], capture_output=True, text=True, check=False, env=shared
    )
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-1000:]
