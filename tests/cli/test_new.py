"""`rlx new`: what it writes, and what it refuses to."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rlx_core.cli.scaffold import KINDS, names_for, rendered
from rlx_core.errors import ConfigError

NAMES = {"op": "kit.shrink", "pass": "kit.guard-exp", "backend": "kit", "plugin": "kit"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_of_each_kind_is_whole(rlx, kind) -> None:
    ran = rlx("new", kind, NAMES[kind], "--into", "made")

    assert ran.code == 0, ran.err
    project = Path("made", "kit-rlx")
    table = tomllib.loads((project / "pyproject.toml").read_text())
    assert table["project"]["entry-points"]["rlx.plugins"] == {"kit": "kit_rlx.plugin"}
    modules = {path.relative_to(project).as_posix() for path in project.rglob("*.py")}
    assert {"src/kit_rlx/plugin.py", "tests/test_plugin.py"} < modules
    assert not [path for path in project.rglob("*") if path.is_file() and "$" in path.read_text()]
    for path in modules:
        ast.parse((project / path).read_text())
    assert (project / "README.md").read_text().startswith("# kit-rlx\n")


def test_every_kind_has_a_name_to_try() -> None:
    assert set(NAMES) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_linted_and_formatted(rlx, kind) -> None:
    rlx("new", kind, NAMES[kind])
    for words in (["check", "--select", "E,F,I,B,UP"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *words, "--no-cache", "."]
        done = subprocess.run(command, cwd="kit-rlx", capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_folder_that_is_there_is_left_alone(rlx) -> None:
    project = rlx.place / "kit-rlx"
    project.mkdir()
    ran = rlx("new", "op", "kit.shrink")
    assert ran.code == 2
    assert "is there already; nothing was written" in ran.err
    assert list(project.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("op", "shrink"), "'shrink' is not a lower-case `domain.name`"),
        (("op", "shrink"), "rlx new op acme.shrink"),
        (("op", "Kit.shrink"), "is not a lower-case `domain.name`"),
        (("op", "kit.a.b"), "is not a lower-case `domain.name`"),
        (("plugin", "kit.shrink"), "is not one lower-case word"),
        (("op", "rlx.shrink"), "the domain rlx is taken"),
        (("op", "kit.shrink", "--package", "Kit Tools"), "is no name of a package"),
        (("op", "kit.shrink", "--package", "numpy"), "a package numpy is installed already"),
        (("op", "kit.shrink", "--package", "json"), "a module json is there already"),
        (("opp", "kit.shrink"), "did you mean `op`?"),
    ],
)
def test_a_name_that_cannot_be_is_refused_before_anything_is_written(rlx, words, says) -> None:
    ran = rlx("new", *words)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert not list(rlx.place.glob("*-rlx"))


@pytest.mark.parametrize("name", ["op", "where", "lambda", "x", "np", "1st", "sample"])
def test_a_name_that_the_code_says_for_something_else_is_refused(name) -> None:
    with pytest.raises(ConfigError) as raised:
        rendered(names_for("op", f"kit.{name}", None, {}))
    assert raised.value.message.startswith(f"new op kit.{name}: ")


def test_another_package_name_names_the_module_too(rlx) -> None:
    ran = rlx("new", "op", "kit.shrink", "--package", "kit-tools", "--json")
    assert ran.json["package"] == "kit_tools"
    assert (rlx.place / "kit-tools" / "src" / "kit_tools" / "ops.py").is_file()
