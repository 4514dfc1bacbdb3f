"""The script `rlx` where the packages of the command line are not installed, and what rlx-core requires without them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]

WITHOUT = """
import importlib.util, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in {missing} else find_spec(name, package)
from rlx_core.cli import run
sys.exit(run())
"""


def run(missing: tuple[str, ...], *words: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(missing=missing)
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)


def test_missing_packages_are_named_with_the_command_that_installs_them() -> None:
    done = run(("typer", "rich"), "ops")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "rlx: the command line needs rich and typer, not installed here",
        'hint: python -m pip install "rlx-core[cli]"',
    ]
    assert "needs typer," in run(("typer",), "ops").stderr


def test_with_them_the_command_line_runs() -> None:
    done = run((), "--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "rlx")


def test_the_core_requires_no_package_of_the_command_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {Requirement(each).name for each in project["dependencies"]}
    assert names == {"numpy", "attrs", "pluggy", "optree", "ml_dtypes", "packaging"}
    assert {Requirement(each).name for each in project["optional-dependencies"]["cli"]} == {"rich", "typer"}
