"""Who is not needed is not imported: with a hundred idle plugins installed, a program imports the two that it uses."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

IDLE = 100

PLUGIN = """
from rlx_core.contributions import BackendSpec, KernelSpec, OpSpec, PassSpec
from rlx_core.hooks import hookimpl

@hookimpl
def rlx_ops():
    return [OpSpec("{name}.shift", "{name}_ops:Shift")]

@hookimpl
def rlx_passes():
    return [PassSpec("{name}.look", "{name}_ops:Look")]

@hookimpl
def rlx_backends():
    return [BackendSpec("{name}", "{name}_ops:Device")]

@hookimpl
def rlx_kernels():
    return [KernelSpec("{name}", "{name}_ops:kernels")]
"""

OPS = """
from rlx_core.ops import define_op, Op, op_function

@define_op(domain="{name}")
class Shift(Op):
    by: float = 1.0

    def decompose(self, x):
        return x + self.by

shift = op_function(Shift)
"""

PROGRAM = """
import json, sys

import numpy as np

import rlx_core as rlx
from used_ops import shift

step = rlx.jit(lambda x: rlx.exp(shift(x, by=2.0)))
assert np.allclose(step(np.zeros(3, np.float32)), np.exp(2.0))
print(json.dumps(sorted(m for m in sys.modules if m.endswith(("_plugin", "_ops")) or m.endswith(".plugin"))))
"""


def install(site: Path, name: str) -> None:
    """A distribution with one plugin, as pip would leave it."""
    (site / f"{name}_plugin.py").write_text(PLUGIN.format(name=name))
    (site / f"{name}_ops.py").write_text(OPS.format(name=name))
    describe(site, name, f"{name}_plugin")


def describe(site: Path, name: str, module: str, when: str = "") -> None:
    info = site / f"{name}_rlx-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}-rlx\nVersion: 1.0\nRequires-Dist: rlx-core>=0.1\n"
    )
    (info / "entry_points.txt").write_text(f"[rlx.plugins]\n{name} = {module}\n{when}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    for name in ["used", *(f"idle{n}" for n in range(IDLE))]:
        install(folder, name)
    if not any(d.name == "rlx-cpu" for d in distributions()):  # a checkout on the path, with nothing installed
        describe(folder, "cpu", "rlx_cpu.plugin", "[rlx.when]\ntarget = rlx_cpu.plugin\n")
    return folder


def run(site: Path, program: str) -> str:
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "RLX_CACHE_DIR": str(site / "cache")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.medium
def test_a_function_that_needs_two_of_a_hundred_plugins_imports_those_two(site: Path) -> None:
    imported = '["rlx_cpu.plugin", "used_ops", "used_plugin"]'

    assert run(site, PROGRAM) == imported
    assert run(site, PROGRAM) == imported  # the second time with the index and the program from the caches


@pytest.mark.medium
def test_all_of_them_are_known_without_being_imported(site: Path) -> None:
    listed = run(
        site,
        "import sys; from rlx_core.plugins import PluginHost\n"
        "names = {row.name for row in PluginHost().survey(load=False)}\n"
        "print(sum(n.startswith('idle') for n in names), [m for m in sys.modules if m.startswith('idle')])",
    )

    assert listed == f"{IDLE} []"


def test_importing_rlx_imports_no_plugin_and_nothing_heavy(site: Path) -> None:
    heavy = (
        "numpy",
        "scipy",
        "attrs",
        "optree",
        "ml_dtypes",
        "rich",
        "typer",
        "pluggy",
        "packaging",
        "llvmlite",
    )
    loaded = run(site, f"import sys, rlx_core; print([m for m in {heavy} if m in sys.modules])")
    mine = run(site, "import sys, rlx_core; print([m for m in sys.modules if m.endswith('plugin') or 'rlx_cpu' in m])")

    assert loaded == "[]"
    assert mine == "[]"


@pytest.mark.medium
def test_using_the_front_door_needs_no_plugin(site: Path) -> None:
    """Tracing and evaluating are the core's own; a target is found when something is compiled for one."""
    program = (
        "import sys, numpy as np, rlx_core as rlx\n"
        "rlx.trace(lambda x: rlx.exp(x) + 1.0, np.ones(3, np.float32)); rlx.add(np.ones(2), np.ones(2))\n"
        "print([m for m in sys.modules if m.endswith('_plugin') or m.startswith(('rlx_cpu', 'scipy'))])"
    )

    assert run(site, program) == "[]"
