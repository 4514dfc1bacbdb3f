"""Without llvmlite: the whole package works with NumPy in a process that cannot import it, and says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "llvmlite":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import importlib.util
whole = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "llvmlite" else whole(name, package)
"""

PROGRAM = """
import json
import numpy as np
import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core import nn
from rlx_core.errors import ConfigError
from rlx_core.plugins import PluginHost, set_default_host
host = PluginHost([rlx_cpu.plugin])
set_default_host(host)
w = np.eye(4, dtype="f4")
loss = rlx.value_and_grad(lambda w, x: rlx.mean(nn.gelu(nn.linear(x, w)) ** 2))
step = rlx.jit(lambda w, x: loss(w, x), host=host, target="cpu")
value, gradient = step(w, np.ones((3, 4), "f4"))
refused = []
for options in ({"cpu.tier": "native"}, {"cpu.isa": "avx2"}):
    try:
        rlx.compile(lambda x: x + 1, rlx.spec("f32[2]"), host=host, target="cpu", config={"options": options})
    except ConfigError as error:
        refused.append(str(error))
kernels = sorted({kernel for _, kernel, _ in step.report.kernels})
print(json.dumps([float(value), float(np.sum(np.asarray(gradient))), kernels, refused, "llvmlite" in sys.modules]))
"""

COMMAND = """
from rlx_core.cli.main import main
sys.argv = ["rlx", *sys.argv[1:]]
main()
"""


def run(code: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + code, *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, **environment}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.medium
def test_a_program_trains_with_numpy_and_refuses_native_code_with_the_reason() -> None:
    value, gradient, kernels, refused, is_imported = json.loads(run(PROGRAM))

    assert abs(value - 0.8413447**2) < 1e-5  # gelu(1) is the normal distribution's value at 1, in f32
    assert gradient > 0
    assert kernels
    assert not any(kernel.startswith("native_") for kernel in kernels)
    assert len(refused) == 2
    assert all("llvmlite is not installed" in text for text in refused)
    assert not is_imported


@pytest.mark.medium
def test_rlx_doctor_says_that_the_native_tier_is_missing(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    found = run(COMMAND, "doctor", RLX_CACHE_DIR=str(tmp_path))

    assert "NumPy: llvmlite is not installed" in " ".join(found.split())
