"""Where nothing can be compiled: no llvmlite, and nothing of this package that emits code."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from .conftest import N, X

RUNNER = """
import sys

EMITS = ("rlx_cpu.native.products", "rlx_cpu.native.loops", "rlx_cpu.native.table", "rlx_cpu.kernels",
         "rlx_cpu.native.runtime.program", "rlx_cpu.native.runtime.steps", "rlx_cpu.native.runtime.own_code",
         "rlx_cpu.packaged.writing", "rlx_cpu.packaged.linking", "rlx_core.passes.fuse", "rlx_core.codegen.loops")

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "llvmlite" or name.startswith(EMITS) or name.endswith("_code"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import importlib.util
whole = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "llvmlite" else whole(name, package)

import numpy as np
import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.plugins import PluginHost
host = PluginHost([rlx_cpu.plugin])
"""


def run(program: str, *arguments: object) -> str:
    found = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", RUNNER + textwrap.dedent(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.medium
def test_a_package_runs_and_says_what_it_lacks(package: Path, wanted: list[np.ndarray], tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=X, n=N)
    said = run(
        """
        package, folder = sys.argv[1:]
        found = rlx.load(package, host=host)
        given = np.load(folder + "/in.npz")
        for _ in range(4):
            one, rest = found(given["x"], given["n"])
        np.savez(folder + "/out.npz", one["h"], one["sorted"], *rest)
        assert found(given["x"][:1], given["n"][:1])[0]["h"].shape == (1, 64)
        try:
            found(given["x"][:3], given["n"][:3])
        except rlx.errors.BindingError as error:
            print(error)
        print(sorted(name for name in sys.modules if "llvmlite" in name or "rlx_core.ops." in name))
        """,
        package,
        tmp_path,
    )
    out = np.load(tmp_path / "out.npz")
    for number, expected in enumerate(wanted):
        np.testing.assert_allclose(out[f"arr_{number}"], expected, rtol=2e-6, atol=1e-6)
    assert "no program for {rows=3}" in said
    assert "{rows=1}, {rows=8}" in said
    assert "llvmlite is not installed" in said
    assert said.rstrip().endswith("['rlx_core.ops.families']"), "their names alone: no op was imported, let alone LLVM"
