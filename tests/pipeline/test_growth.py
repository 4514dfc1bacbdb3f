"""A program eight times as long takes about eight times the work to compile: passes, planning and verifying alike."""

from __future__ import annotations

from typing import Any

import pytest

import rlx_core as rlx
from benchmarks.growth import gru, runge_kutta
from rlx_core.ir import verify_memory
from rlx_core.passes.engine import fusion
from rlx_core.pipeline.compile import compile_graph
from rlx_core.pipeline.compiled import Compiled

LESS_THAN_SQUARED = 3.0
"""How much more than in proportion eight times the length may take: 24 times in all, where a square takes 64."""


def compiled(program: Any, steps: int, *, gradient: bool = False) -> Compiled:
    function, arrays = program(rlx, steps)
    graph = rlx.trace(rlx.grad(function) if gradient else function, *arrays)
    return compile_graph(graph, target="cpu")


def meetings(steps: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many pairs of values are compared when the memory of a gradient is verified."""
    lir = compiled(gru, steps, gradient=True).lir
    calls: list[object] = []
    clashes_with = verify_memory._Life.clashes_with
    with monkeypatch.context() as patched:
        patched.setattr(verify_memory._Life, "clashes_with", lambda a, b: calls.append(a) or clashes_with(a, b))
        assert list(verify_memory.memory_faults(lir)) == []
    return len(calls)


def test_memory_is_compared_among_neighbours_however_much_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = meetings(4, monkeypatch), meetings(16, monkeypatch)
    assert 0 < many < 4 * LESS_THAN_SQUARED / 2 * few


def test_a_target_is_asked_once_about_equal_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    refusal_of = fusion.refusal_of
    monkeypatch.setattr(fusion, "refusal_of", lambda c, n: asked.append(n.op.name) or refusal_of(c, n))
    counts = []
    for steps in (4, 12):
        asked.clear()
        compiled(runge_kutta, steps)
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("program", "gradient"), [(runge_kutta, False), (gru, True)])
def test_every_pass_takes_the_time_of_its_programs_length(program: Any, gradient: bool) -> None:
    steps = {runge_kutta: 24, gru: 7}[program]  # about 500 nodes
    compiled(program, 2, gradient=gradient)  # imports
    short, long = (compiled(program, n, gradient=gradient).report for n in (steps, 8 * steps))
    times = {p.name: 0.0 for p in long.passes}
    for each in short.passes:
        times[each.name] += 8 * LESS_THAN_SQUARED * each.seconds
    for each in long.passes:
        times[each.name] -= each.seconds
    slow = {name: left for name, left in times.items() if left < -0.1}  # seconds: what a busy machine does to one pass
    assert slow == {}
