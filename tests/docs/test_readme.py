"""The README is true: its programs run, and its commands and links are there; so are the folders of the source tree's page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import rlx_core as rlx
from rlx_core.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
TREE = (ROOT / "docs" / "source-tree.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(?:\w*)\n(.*?)```", re.DOTALL)


def test_the_first_program_compiles_runs_and_differentiates(capsys) -> None:
    (program,) = BLOCK.findall(SECTIONS["Compile, differentiate, run"])
    names: dict = {}
    exec(compile(program, "README.md", "exec"), names)
    assert {n: g.shape for n, g in names["grads"].items()} == {n: p.shape for n, p in names["params"].items()}
    out = capsys.readouterr().out
    assert "(5, 10) predict on " in out
    assert "graph predict {" in out, "printing the graph shows the program"


def test_what_is_saved_is_called_as_before(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for section in ("Compile, differentiate, run", "Save and send"):
        (program,) = BLOCK.findall(SECTIONS[section])
        exec(compile(program, "README.md", "exec"), names)
    assert (names["again"](names["x"]) == names["fast"](names["x"])).all()


def test_a_model_is_trained_and_its_state_saved(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for section in ("Compile, differentiate, run", "Train"):
        (program,) = BLOCK.findall(SECTIONS[section])
        exec(compile(program, "README.md", "exec"), names)
    assert names["value"] < 0.1
    assert (tmp_path / "state.safetensors").exists()


def test_every_command_exists() -> None:
    (block,) = BLOCK.findall(SECTIONS["Command line"])
    asked = set(re.findall(r"\brlx (\w+)", block))
    assert len(asked) >= 7
    assert asked <= {spec.name for spec in COMMANDS}


def test_everything_in_the_tree_exists() -> None:
    core = [f"rlx_core/{name}" for name in re.findall(r"^  (\S+)", TREE, re.MULTILINE)]
    plugins = set(re.findall(r"\brlx_\w+", TREE)) - {"rlx_core"}
    folders = re.search(r"^docs/ .*$", TREE, re.MULTILINE)[0].split()
    assert min(map(len, (core, plugins, folders))) >= 2
    assert [name for name in (*core, *folders) if not (ROOT / name).exists()] == []
    # This way round, because any plugin's folder may be deleted and everything else must pass.
    assert {p.parent.name for p in (ROOT / "plugins").glob("*/pyproject.toml")} <= plugins


def test_every_part_of_the_core_is_in_the_tree() -> None:
    parts = {p.name for p in (ROOT / "rlx_core").iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert parts == set(re.findall(r"^  (\w+)/", TREE, re.MULTILINE))


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)|src=\"([^\"]+)\"", TEXT)
    assert len(links) >= 6
    assert [link for pair in links for link in pair if link and not (ROOT / link).exists()] == []


def test_every_target_of_make_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", TEXT, re.MULTILINE)) <= targets


def test_no_line_of_code_is_cut_off_where_a_page_of_a_repository_is_narrow() -> None:
    lines = [line for block in BLOCK.findall(TEXT) for line in block.splitlines()]
    assert [line for line in lines if len(line) > 88] == []
    assert len(TEXT.splitlines()) <= 260


def test_the_op_is_defined_and_has_derived_rules() -> None:
    (program,) = BLOCK.findall(SECTIONS["Extend it"])
    names: dict = {}
    exec(compile(program, "README.md", "exec"), names)
    gradient = rlx.grad(lambda x: rlx.sum(names["shrink"](x, limit=0.5)[0]))
    np.testing.assert_array_equal(gradient(np.array([-2.0, 0.25, 2.0])), [1, 0, 1])
