"""Programs that failed once, each reduced to the smallest that did: `tests/fuzz/cases` keeps them for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rlx_cpu", reason="it compiles for the CPU: rlx-cpu is not installed")

import rlx_cpu.plugin
from rlx_core.plugins import PluginHost
from rlx_core.testing.fuzz import complaint
from rlx_core.testing.kept import read_case, text_of
from rlx_cpu.fuzz_setups import FUZZ_SETUPS

HOST = PluginHost([rlx_cpu.plugin])
CASES = sorted((Path(__file__).parent / "cases").glob("*.rlx.txt"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name.removesuffix(".rlx.txt"))
def test_what_failed_once_does_not_fail_again(path: Path) -> None:
    assert complaint(read_case(path), FUZZ_SETUPS, host=HOST) is None


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name.removesuffix(".rlx.txt"))
def test_a_case_reads_back_as_what_was_written(path: Path, tmp_path: Path) -> None:
    program = read_case(path)
    again = tmp_path / path.name
    again.write_text(text_of(program, "again"))

    assert read_case(again).graph == program.graph
    assert {n: a.tobytes() for n, a in read_case(again).fed.items()} == {n: a.tobytes() for n, a in program.fed.items()}
    assert read_case(again).donations == program.donations
