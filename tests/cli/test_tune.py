"""`rlx tune`: schedules that were selected by measurement are listed and removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rlx_core.cli.main import app
from rlx_core.tuning.store import ChoiceStore, StoredChoice


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), prog_name="rlx")


@pytest.fixture
def choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredChoice:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    made = StoredChoice("product f32[8]", "a machine", "products 1", "items=8", "model", 1.5, 0.25, 2.5, 0.5, 15)
    ChoiceStore().put(made)
    return made


def test_choices_are_listed_by_machine(choice: StoredChoice) -> None:
    out = run("tune").stdout
    assert out.startswith("a machine\n")
    row = out.splitlines()[-1]
    assert all(text in row for text in ("items=8", "model", "1.5 ± 0.2 us, default 2.5 ± 0.5 us", "product f32[8]"))


def test_choices_as_data(choice: StoredChoice) -> None:
    (row,) = json.loads(run("tune", "--json").stdout)
    assert StoredChoice(**row) == choice


def test_cleared_choices_are_gone(choice: StoredChoice) -> None:
    done = run("tune", "--clear")
    assert (done.exit_code, done.stdout.strip()) == (0, "no schedules were selected by measurement")
    assert ChoiceStore().choices() == []
    assert json.loads(run("tune", "--json").stdout) == []
