"""A backend that ends or blocks the process of a law has failed that law, and the others are tried."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlx_core.cli.conforming import processes
from rlx_core.cli.conforming.laws import Laws, LawTask, LawVerdict, cases_of
from rlx_core.cli.conforming.processes import in_processes
from rlx_core.cli.main import app
from rlx_core.cli.session import CliSession
from rlx_core.plugins import PluginHost
from rlx_core.plugins.entry import named_entry

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "add-a-backend.md"
ROWS = """
import os, time
from rlx_core.contributions import BackendSpec
from rlx_core.hooks import hookimpl
from rlx_core.ops import cos, exp, sin, sqrt

@kernels.register(exp.op, dtypes="f32")
def aborts(op, x, *, out, workspace):
    os.abort()

@kernels.register(sqrt.op, dtypes="f32")
def exits(op, x, *, out, workspace):
    os._exit(0)

@kernels.register(sin.op, dtypes="f32")
def blocks(op, x, *, out, workspace):
    time.sleep(1000)

@kernels.register(cos.op, dtypes="f32")
def is_wrong(op, x, *, out, workspace):
    np.sin(x, out=out)

@hookimpl
def rlx_backends():
    return [BackendSpec("slate", Slate)]
"""
SOUND = ROWS[: ROWS.index("@kernels")] + ROWS[ROWS.index("@hookimpl") :]
"""The plugin without these rows."""

NAMES = ("rlx.add", "rlx.exp", "rlx.sqrt", "rlx.sin", "rlx.cos", "rlx.mul")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="os.abort has an exit code there, and no signal"),
]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page's partial backend with rows that end a process, as a word of the command line."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "kit_plugin.py"
    file.write_text("\n".join(blocks[:3]) + ROWS)
    return f"kit={file}"


def results_of(session: CliSession) -> Laws:
    """The law of results on a program of each of `NAMES`, in this order."""
    cases = cases_of(session, is_quick=True)
    places = {row.name: place for place, (row, _) in enumerate(cases)}
    return Laws("slate", True, len(cases), tuple(LawTask(places[name], "results") for name in NAMES))


def test_a_law_that_ends_its_process_has_failed_and_the_next_ones_are_tried(plugin: str) -> None:
    session = CliSession(enable=(plugin,))
    found = dict(zip(NAMES, in_processes(session, results_of(session), seconds=6.0), strict=True))
    assert found["rlx.add"] == found["rlx.mul"] == LawVerdict("passed")
    assert found["rlx.exp"] == LawVerdict("failed", "its process ended by SIGABRT")
    assert found["rlx.sqrt"] == LawVerdict("failed", "its process ended with exit code 0")
    assert found["rlx.sin"] == LawVerdict("failed", "no verdict after 6 s")
    assert found["rlx.cos"].status == "failed"
    assert "oracle" in found["rlx.cos"].reason


def test_after_too_many_ends_laws_are_left_untried(plugin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MAX_ENDS", 1)
    session = CliSession(enable=(plugin,))
    found = [verdict.status for verdict in in_processes(session, results_of(session))]
    assert found == ["passed", "failed", *["untried"] * 4]


def test_command_reports_the_signal_and_exits_with_1(plugin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MAX_ENDS", 1)
    ran = CliRunner().invoke(app, ["--plugin", plugin, "conform", "slate", "--quick", "--json"], prog_name="rlx")
    assert ran.exit_code == 1, ran.output
    found = json.loads(ran.stdout)
    assert [row["op"] for row in found["failed"] if "SIGABRT" in row["reason"]] == ["rlx.exp"]
    assert found["families"]["structural"]["untried"] > 0
    assert found["level"] == "none"


def test_command_in_a_program_with_a_host_of_its_own_tries_laws_there(
    plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "in_processes", None)
    entry = named_entry(plugin.replace("kit=", ""))
    source = Path(entry.file)
    source.write_text(source.read_text().replace(ROWS, SOUND))
    words = ["conform", "slate", "--quick", "--json"]
    ran = CliRunner().invoke(app, words, prog_name="rlx", obj=lambda policy: PluginHost([entry], policy=policy))
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["failed"] == []
