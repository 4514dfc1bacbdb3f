"""The program itself: help, global options, errors, commands of plugins, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HELP = """\
Usage: rlx [OPTIONS] COMMAND [ARGS]...

  rlx: an ML compiler whose ops, passes and devices are plugins.

Options:
  --plugin FILE|MODULE  Use a plugin that is not installed; may be repeated.
  --block NAME          Never import this plugin; patterns such as * work.
  --allow NAME          Import no plugin but this one; may be repeated.
  --config FILE         Read this configuration instead of the nearest one.
  --no-color            Print without colours.
  --debug               Show the traceback of an error.
  --version             Print the version.
  -h, --help            Show this message and exit.

Commands:
  plugins  List plugins with their states, reasons and contributions.
  ops      List ops, or show everything about one.
  passes   List passes with their options and relations.
  compile  Compile a program, and print it at any level.
  why      Explain the origin of an op, a pass or a kernel selection.
  plan     Show the pipeline that the configuration resolves to.
  doctor   Check this installation and print remedies.
  explain  Explain a kind of error.
  show     Print a saved program as text.
  package  Write a saved function with its code, to be deployed.
  trust    Allow the code of a package, or list known packages.
  tune     List or clear schedules that were selected by measurement.
  new      Write a package of your own: an op, a pass, a backend or a plugin.
  check    Check a package: its plugin, contributions, laws and plans.
  conform  Show the conformance level of a target.
  demo     Embed sentences, train a classifier, draw both programs.
  bench    Time rlx, and with --peers alternative systems.
"""

BENCH = """
    @hookimpl
    def rlx_commands():
        yield CommandSpec("gauge", "bench_command:bench", summary="Measure something.")
        yield CommandSpec("ops", "bench_command:bench", summary="Not reachable.")
"""
COMMAND = """
import typer

def bench(times: int = typer.Option(1, help="How often."), fail: bool = False) -> None:
    if fail:
        raise typer.Exit(7)
    print(f"measured {times} times")
"""


@pytest.fixture
def bench(rlx):
    """A plugin with a command, beside one that is broken."""
    rlx.install("bench", BENCH)
    rlx.install("raises", "raise ValueError('no')")
    (rlx.place / "bench_command.py").write_text(COMMAND)
    return rlx


def test_help_says_what_there_is(rlx) -> None:
    ran = rlx("--help")
    assert (ran.code, ran.out, ran.err) == (0, HELP, "")


@pytest.mark.parametrize("command", ["demo", "bench"])
def test_what_runs_the_repository_s_programs_is_not_offered_without_it(rlx, command, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("rlx_core.cli.checkout.ROOT", tmp_path)
    assert f"  {command} " not in rlx("--help").out
    ran = rlx(command)
    assert ran.code == 2
    assert f"{command}: " in ran.err
    assert "is part of the repository, and not of the installed package" in ran.err
    assert f"in a checkout: `make {command}`" in ran.err


def test_help_lists_the_commands_of_plugins_that_work(bench) -> None:
    ran = bench("--help")
    assert ran.out == HELP + "\nCommands of plugins:\n  gauge  Measure something.\n"
    assert "bench_command" not in sys.modules


@pytest.mark.parametrize(
    "words", [("--block", "bench", "--help"), ("--help", "--block", "bench"), ("--allow", "raises", "-h")]
)
def test_a_blocked_plugin_is_not_imported_for_the_help(bench, words) -> None:
    assert "Commands of plugins" not in bench(*words).out


def test_the_help_works_while_the_configuration_cannot_be_read(bench) -> None:
    (bench.place / "rlx.toml").write_text("[plugins")
    ran = bench("--help")
    assert ran.out.startswith(HELP)
    assert "configuration:" in ran.out
    assert bench("gauge").code == 2


@pytest.mark.parametrize(
    "command", ["plugins", "ops", "passes", "why", "plan", "doctor", "explain", "show", "demo", "bench"]
)
def test_the_help_of_a_command_begins_with_its_line_in_the_list(rlx, command) -> None:
    ran = rlx(command, "--help")
    line = next(each.split(maxsplit=1)[1] for each in HELP.splitlines() if each.startswith(f"  {command} "))
    assert ran.code == 0
    assert line.rstrip(".") in " ".join(ran.out.split())
    assert max(map(len, ran.out.splitlines())) <= 80


def test_the_kinds_of_why_are_listed_whole(rlx) -> None:
    assert "..." not in rlx("why", "--help").out.partition("Commands:")[2]


def test_a_command_of_a_plugin_runs_with_its_own_options(bench) -> None:
    assert bench("gauge", "--times", "3").out == "measured 3 times\n"
    assert "How often." in bench("gauge", "--help").out
    assert bench("gauge", "--fail").code == 7


def test_a_command_that_cannot_be_imported_is_an_error_with_its_cause(rlx) -> None:
    rlx.install("bench", BENCH)
    ran = rlx("gauge")
    assert ran.code == 2
    assert "PluginError: bench_command:bench: loading it raised ModuleNotFoundError" in ran.err
    assert "bench-rlx 1.0" in ran.err


def test_a_command_that_is_no_function_is_refused(rlx) -> None:
    rlx.install("text", "@hookimpl\ndef rlx_commands(): return [CommandSpec('text', 'math:pi')]")
    assert "PluginError: command text: it is a float, neither a function nor a typer.Typer" in rlx("text").err


def test_a_plugin_cannot_stand_in_for_a_command_of_rlx(bench) -> None:
    assert "rlx.softmax" in bench("ops", "softmax").out


def test_an_unknown_command_is_named_with_the_nearest_and_with_who_failed(bench) -> None:
    ran = bench("plugin")
    assert ran.code == 2
    assert "UnknownNameError: rlx plugin: there is no such command" in ran.err
    assert "did you mean `plugins`?" in ran.err
    assert "ValueError: no" in ran.err


def test_the_version_is_the_packages(rlx) -> None:
    from rlx_core import __version__

    assert rlx("--version").out.startswith(f"rlx {__version__} (Python 3.")


def test_an_error_is_printed_without_a_traceback_unless_it_is_asked_for(rlx) -> None:
    plain, full = rlx("ops", "rlx.sofmax_"), rlx("--debug", "ops", "rlx.sofmax_")
    assert (plain.code, full.code, plain.out) == (2, 2, "")
    assert plain.err.startswith("UnknownNameError: rlx.sofmax_: no plugin provides this op\n")
    assert "did you mean `rlx.softmax`?" in plain.err
    assert "Traceback" not in plain.err
    assert "Traceback" in full.err
    assert plain.err.strip().splitlines()[0].partition(": ")[2] in full.err


def test_ctrl_c_ends_with_130_and_no_traceback(rlx) -> None:
    rlx.install("slow", "@hookimpl\ndef rlx_ops(): raise KeyboardInterrupt")
    ran = rlx("plugins")
    assert ran.code == 130
    assert "Traceback" not in ran.err


def test_a_plugin_that_is_not_installed_can_be_named(rlx) -> None:
    file = rlx.install("mine", "@hookimpl\ndef rlx_ops(): return [OpSpec('mine.op', 'math:exp')]")
    rlx.entries.clear()
    rows = rlx("--plugin", f"mine={file.name}", "plugins", "--json").json["plugins"]
    assert [(row["name"], row["state"]) for row in rows] == [("mine", "active"), ("rlx", "active")]


def test_the_plugins_table_of_the_configuration_counts(rlx) -> None:
    rlx.install("raises", "raise AssertionError('imported')")
    rlx.install("mine", "@hookimpl\ndef rlx_ops(): return [OpSpec('mine.op', 'math:exp')]")
    rlx.entries.pop()
    (rlx.place / "conf").mkdir()
    config = rlx.place / "conf" / "rlx.toml"
    config.write_text('[plugins]\nblock = ["raises"]\nfiles = ["mine=../mine_plugin.py"]\n')
    rows = rlx("--config", str(config), "plugins", "--json").json["plugins"]
    assert {row["name"]: row["state"] for row in rows} == {"mine": "active", "raises": "blocked", "rlx": "active"}


def test_what_a_plugin_prints_while_it_is_imported_stays_out_of_the_json(rlx) -> None:
    rlx.install("loud", "print('hello from loud')\n@hookimpl\ndef rlx_ops(): return []")
    ran = rlx("plugins", "--json")
    assert {row["name"] for row in ran.json["plugins"]} == {"loud", "rlx"}
    assert "hello from loud" in ran.err


# ---------------------------------------------------------------------------------------- as a process


def process(*words: str, place: Path, code: str = "from rlx_core.cli.main import main; main()") -> tuple[int, str, str]:
    """The command in a process of its own, with nothing that is installed."""
    path = os.pathsep.join(os.path.abspath(each) for each in sys.path)
    environment = {**os.environ, "PYTHONPATH": path, "RLX_PLUGINS_BLOCK": "*", "RLX_CACHE_DIR": str(place / "cache")}
    ran = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, env=environment, cwd=place, check=False
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.medium
def test_the_version_imports_neither_arrays_nor_tables(tmp_path) -> None:
    code = (
        "import sys\nfrom rlx_core.cli.main import app\n"
        "try: app()\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'rich', 'rlx_core.ir.op', 'rlx_core.cli.ops') if m in sys.modules])"
    )
    for word in ("--version", "--help"):
        assert process(word, place=tmp_path, code=code)[1].splitlines()[-1] == "[]", word


@pytest.mark.medium
def test_a_reader_that_has_gone_is_no_error_worth_a_word(tmp_path) -> None:
    code = (
        "import os, sys\nread, write = os.pipe()\nos.dup2(write, 1)\nos.close(read)\nos.close(write)\n"
        "from rlx_core.cli.main import main\nmain()"
    )
    code_of, _, err = process("explain", place=tmp_path, code=code)
    assert (code_of, err) == (1, "")


@pytest.mark.medium
def test_a_warning_is_one_line_without_the_place_in_the_source_that_raised_it() -> None:
    program = (
        "import warnings; from rlx_core.cli import main\n"
        "main.app = lambda *args, **options: warnings.warn('kit: it is left out.', RuntimeWarning)\n"
        "main.main([])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "warning: kit: it is left out.\n"
