"""The package as a model for others: a light door, the public API alone, a README that runs."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core.ops
import rlx_custom_ops
import rlx_custom_ops.plugin
from rlx_core.errors import UnknownNameError
from rlx_core.ir.op import Op
from rlx_core.plugins import PluginEntry, PluginHost
from rlx_core.testing.subjects import ops_of
from rlx_custom_ops.ops import OPS

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))

PUBLIC = {
    "rlx_core",
    "rlx_core.contributions",
    "rlx_core.emit.table",
    "rlx_core.errors",
    "rlx_core.hooks",
    "rlx_core.kit",
    "rlx_core.ops",
    "rlx_core.pipeline.kernels",
}
"""What rlx promises to packages."""


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}
    return names | {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)
def test_only_the_public_api_is_imported(path: Path) -> None:
    assert {name for name in imported(path) if name.startswith("rlx_core")} <= PUBLIC


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)
def test_the_mathematics_knows_no_scipy(path: Path) -> None:
    """References are the meaning, and rest on NumPy alone; but those of sparse systems, which nothing dense can stand for."""
    if path.name != "kernels.py" and path.parent.name != "sparse":
        assert not any(name.startswith("scipy") for name in imported(path))


@pytest.mark.parametrize(
    "door", ["rlx_custom_ops.plugin", "rlx_custom_ops.sparse.plugin", "rlx_custom_ops.splat.plugin"]
)
def test_the_door_imports_nothing_heavy(door: str) -> None:
    code = (
        f"import sys, {door} as p; list(p.rlx_ops()), p.rlx_kernels()\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'scipy') or m.startswith('rlx_custom_ops.')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(ast.literal_eval(out)) == {door, door.removesuffix(".plugin")} - {"rlx_custom_ops"}


def test_the_door_names_every_op_in_its_own_file() -> None:
    offered = {spec.name: spec.load.resolve() for family in rlx_custom_ops.plugin.rlx_ops() for spec in family}
    assert offered == {op.name: op for op in OPS}


def test_a_host_finds_the_ops_and_the_kernels() -> None:
    host = PluginHost([PluginEntry("linalg", plugin=rlx_custom_ops.plugin)])
    assert host.load("ops", "linalg.cholesky").__name__ == "Cholesky"
    assert host.registry().owner("ops", "linalg.svd").plugin == "linalg"
    for spec in host.registry().kernels_for("cpu"):
        assert len(host.registry().load("kernels", spec.name))


@pytest.mark.parametrize("name", ["linalg", "rlx_custom_ops.plugin", "rlx_custom_ops.ops"])
def test_the_laws_find_the_ops_by_plugin_and_by_module(cpu: PluginHost, name: str) -> None:
    assert set(ops_of(name)) == set(OPS)


def test_the_laws_refuse_a_plugin_that_is_not_there(cpu: PluginHost) -> None:
    with pytest.raises(UnknownNameError, match="no plugin 'linalgg'"):
        ops_of("linalgg")


def test_the_metadata_has_the_door() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    doors = {name: f"rlx_custom_ops.{name}.plugin" for name in ("sparse", "splat")} | {
        "linalg": "rlx_custom_ops.plugin"
    }
    assert project["entry-points"]["rlx.plugins"] == doors
    assert set(project["entry-points"]["rlx.when"]) == {f"domain.{name}" for name in doors}
    assert "rlx-core>=0.1,<0.2" in project["dependencies"]


def test_every_op_has_a_function() -> None:
    assert {op.name.removeprefix("linalg.") for op in OPS} == set(rlx_custom_ops.__all__) - {"cond", "norm"}
    for name in rlx_custom_ops.__all__:
        assert callable(getattr(rlx_custom_ops, name))
    with pytest.raises(AttributeError, match="has no attribute 'choleski'"):
        rlx_custom_ops.choleski  # noqa: B018


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_primitive_has_every_rule_and_every_op_a_page(op: type[Op]) -> None:
    assert op.__doc__
    assert "Shapes:" in op.__doc__
    if op.decompose is None:
        assert all(getattr(op, rule) is not None for rule in ("infer", "reference", "vjp", "jvp", "batch", "cost"))
        assert op.name in ("linalg.triangular_solve",) or "Source:" in op.__doc__


def test_nothing_of_rlx_is_shadowed() -> None:
    """Only `solve`, which says in its page how it differs, and NumPy's name for the condition, which is no choice."""
    assert set(rlx_custom_ops.__all__) & set(rlx_core.__all__) == {"solve", "cond"}


@pytest.mark.parametrize("name", ["kron", "least_squares", "norms", "polar", "solve", "triangular"])
def test_the_examples_of_functions_run(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"rlx_custom_ops.ops.{name}"))
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.medium
def test_the_readmes_examples_run(cpu: PluginHost) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    found: dict[str, Any] = {}
    for block in blocks:
        exec(block, found)
    assert found["gradients"]["scale"].shape == ()
    assert np.isfinite(found["value"])
    assert found["sensitivity"].pattern == found["stiffness"].pattern


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
def test_a_precision_policy_leaves_every_op_alone(op: type[Op]) -> None:
    assert op.category == "boundary"
