"""A program from the cache: the second process imports nothing that makes code, which is what its first call would wait for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
import numpy as np
import rlx_core as rlx
from rlx_core import nn

layer = rlx.jit(lambda x, w: nn.softmax(nn.linear(x, w, activation="gelu")))
layer(np.ones((8, 16), np.float32), np.ones((16, 16), np.float32))
print(json.dumps([layer.report.cache, *sys.modules]))
"""

MAKERS = {"standard", "printer", "microkernel", "fuse", "recognise"}
"""Modules, by the last part of their names, that are imported to fuse, to emit and to print."""


@pytest.mark.medium
def test_a_program_from_the_cache_imports_nothing_that_makes_code(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        environment = {**os.environ, "RLX_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        source, *modules = json.loads(done.stdout)
        parts = {m.rpartition(".")[2] for m in modules if m.startswith("rlx")}
        found.append((source, parts & MAKERS))

    assert found == [("compiled", MAKERS), ("disk", set())]
