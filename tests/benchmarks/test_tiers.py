"""No benchmark runs a step on the NumPy tier: what is not native is a library call, and the report names it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llvmlite", reason="it is about native code")
sys.path.insert(
    0, str(Path(__file__).parents[2])
)  # the benchmarks are programs of the checkout, not an installed package

from benchmarks.case import Case
from benchmarks.cases import CASES
from rlx_core.pipeline.job import Job
from rlx_core.pipeline.report import CompilationReport
from rlx_core.runtime.cache import CompileCache

ELSEWHERE = ("imported", "compile", "sizes-all")
"""Cases whose models lie in files that a checkout lacks, or that compile within what is timed or in other processes."""

TRIED = [case for case in CASES if not case.name.startswith(ELSEWHERE)]


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[CompilationReport]:
    """The reports of what is compiled for the CPU while a test runs."""
    found: list[CompilationReport] = []
    finished = Job.finished

    def noting(self: Job, *args: Any, **named: Any) -> Any:
        compiled = finished(self, *args, **named)
        if compiled.report.target == "cpu":
            found.append(compiled.report)
        return compiled

    monkeypatch.setattr(Job, "finished", noting)
    # Another test may have compiled the same program.
    monkeypatch.setattr(CompileCache, "get_or_compile", lambda self, key, compile, **_: compile())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_nothing_of_a_benchmark_runs_with_numpy(case: Case, reports: list[CompilationReport]) -> None:
    case.rlx(case.data()).results()
    assert reports, "nothing was compiled"
    slow = [(f.op, f.reason) for each in reports if each.tiers is not None for f in each.tiers.fallbacks]
    assert not slow
