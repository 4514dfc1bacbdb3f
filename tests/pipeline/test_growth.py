"""A program eight times as long takes about eight times the work to compile: passes, planning and verifying alike."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from benchmarks.cases.training import gpt_data, gpt_loss
from benchmarks.growth import gru, runge_kutta
from rlx_core.ir import verify_memory
from rlx_core.ir.lir import Lir
from rlx_core.passes.engine import fusion
from rlx_core.pipeline.compile import compile_graph
from rlx_core.pipeline.compiled import CompiledProgram
from rlx_cpu.native.runtime.steps import functions_of

LESS_THAN_SQUARED = 3.0
"""How much more than in proportion eight times the length may take: 24 times in all, where a square takes 64."""


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    """No garbage collection is timed: one examines the objects of all tests before."""
    gc.disable()
    yield
    gc.enable()


def compiled(program: Any, steps: int, *, gradient: bool = False) -> CompiledProgram:
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


@pytest.mark.medium
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


def nodes_of(lir: Lir) -> int:
    """The nodes of a program, and of the graphs inside its steps."""
    return len(lir.graph.nodes) + sum(nodes_of(plan) for step in lir.steps for plan in step.nested.values())


@pytest.mark.parametrize("gradient", [False, True])
def test_ten_thousand_steps_of_a_loop_are_the_program_that_ten_are(gradient: bool) -> None:
    def run(w: Any, c: Any, xs: Any) -> Any:
        return rlx.sum(rlx.scan(lambda c, x: (rlx.tanh(c @ w + x), None), c, xs)[0])

    sizes = set()
    for steps in (10, 10_000):
        w, c, xs = (np.ones(shape, np.float32) for shape in ((4, 4), (4,), (steps, 4)))
        graph = rlx.trace(rlx.grad(run) if gradient else run, w, c, xs)
        lir = compile_graph(graph, target="cpu").lir
        functions, _ = functions_of(lir)
        sizes.add((len(graph.nodes), nodes_of(lir), len(lir.steps), len(functions)))
    assert len(sizes) == 1


def seconds_of(function: Callable[[], object]) -> float:
    """Processor time, the shorter of two: others may use the machine."""
    found = []
    for _ in range(2):
        start = time.process_time()
        function()
        found.append(time.process_time() - start)
    return min(found)


@pytest.mark.medium
def test_the_graphs_of_a_transformer_of_twelve_layers_and_its_gradient_take_half_a_second() -> None:
    data = gpt_data(layers=12)
    arrays = data["params"], data["x"], data["y"]
    assert seconds_of(lambda: (rlx.trace(gpt_loss, *arrays), rlx.trace(rlx.value_and_grad(gpt_loss), *arrays))) < 0.5


def calls_of(function: Callable[[], object]) -> int:
    """The calls and returns of Python and C functions: a measure of work that no other process changes."""
    count = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.slow
def test_the_work_of_a_compile_is_linear_in_layers() -> None:
    counts = []
    for layers in (1, 4, 32):
        data = gpt_data(layers)
        graph = rlx.trace(rlx.value_and_grad(gpt_loss), data["params"], data["x"], data["y"])
        counts.append(calls_of(lambda graph=graph: compile_graph(graph, target="cpu")))
    _, short, long = counts  # the first one imports
    assert long < 8 * 1.1 * short


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
