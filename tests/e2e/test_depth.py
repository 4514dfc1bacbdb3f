"""Programs of any length: nothing recurses over the nodes, and no stage's work grows faster than the program."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.codegen import formula_of
from rlx_core.draw import view
from rlx_core.ir import serialize
from rlx_core.ir.fingerprint import fingerprint
from rlx_core.ir.graph import Graph
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import Op
from rlx_core.ir.parse import parse_graph
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.text import print_graph
from rlx_core.ir.verify import verify
from rlx_core.ops.fused_loop import FusedLoop
from rlx_core.ops.region import ElementwiseRegion, RegionStep
from rlx_core.pipeline.contributed import HostOps
from rlx_core.plugins import default_host
from rlx_core.transforms.batch import vmap_graph
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.vjp import grad

X = np.linspace(-1, 1, 4, dtype=np.float32)


def chained(steps: int) -> Callable[[Any], Any]:
    """Twice as many ops as `steps`, each of which reads the one before it."""

    def function(x: Any) -> Any:
        y = x
        for _ in range(steps):
            y = rlx.sin(y) * 1.5
        return rlx.sum(y)

    return function


def braided(steps: int) -> Callable[[Any], Any]:
    """Each op reads the one before it and an earlier one, so that most values are needed for long."""

    def function(x: Any) -> Any:
        values = [x]
        for i in range(steps):
            values.append(rlx.tanh(values[-1] + values[i // 2]))
        return rlx.sum(values[-1])

    return function


def expected(steps: int) -> np.ndarray:
    """What `chained` computes, and its derivative, in float64."""
    y, slope = X.astype(np.float64), np.ones(4)
    for _ in range(steps):
        y, slope = np.sin(y) * 1.5, slope * np.cos(y) * 1.5
    return np.array([y.sum(), *slope])


PROGRAMS = {"chain": chained, "braid": braided}

STAGES: Mapping[str, Callable[[Graph], Any]] = {
    "print": print_graph,
    "parse": lambda graph: parse_graph(print_graph(graph), HostOps(default_host())),
    "verify": lambda graph: verify(graph, "hir"),
    "save": serialize.save,
    "load": lambda graph: serialize.load(serialize.save(graph), HostOps(default_host())),
    "fingerprint": fingerprint,
    "compare": lambda graph: graph == rebuild(graph, lambda node, operands: None)[0],
    "difference": lambda graph: view.diff(graph, rebuild(graph, lambda node, operands: None)[0]),
    "summary": view.summary,
    "draw": view.svg,
    "grad": lambda graph: grad(graph, ["x"]),
    "jvp": lambda graph: jvp_graph(graph, ["x"]),
    "vmap": lambda graph: vmap_graph(graph, 0, 0, 3),
    "interpret": lambda graph: interpret(graph, {"x": X}),
}


def calls_in(action: Callable[[], Any]) -> int:
    """How many functions of Python and C are called: what work costs, without a clock."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


@contextmanager
def shallow_stack(frames: int = 200) -> Iterator[None]:
    """Python with so many calls left to nest, so that a short program is deeper than them."""
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


# An edge is drawn past every row between its ends, so the picture of a braid itself grows faster than the program.
CASES = [(program, stage) for program in PROGRAMS for stage in STAGES if (program, stage) != ("braid", "draw")]


@pytest.mark.parametrize(("program", "stage"), CASES)
def test_the_work_of_a_stage_grows_as_the_program_does(program: str, stage: str) -> None:
    loaded, small, large = (rlx.trace(PROGRAMS[program](steps), X) for steps in (20, 20, 100))
    run = STAGES[stage]
    run(loaded)  # what is imported or made by the first use is no part of it

    few, many = calls_in(lambda: run(small)) / len(small), calls_in(lambda: run(large)) / len(large)

    assert many < 1.25 * few, f"{few:.0f} calls a node of {len(small)} nodes, {many:.0f} of {len(large)}"


@pytest.mark.medium
def test_a_program_deeper_than_the_stack_goes_through_every_stage() -> None:
    graph = rlx.trace(chained(150), X)

    for run in STAGES.values():
        run(graph)  # imports nest deeply themselves
        with shallow_stack():
            run(graph)
    np.testing.assert_allclose(interpret(graph, {"x": X})[0], expected(150)[0], rtol=1e-5)


def test_a_kernel_deeper_than_the_stack_is_made() -> None:
    chain = tuple(RegionStep(rlx.sin.op(), (i,)) for i in range(300))
    region = ElementwiseRegion(shape=(4,), steps=chain, access=((1,),), results=(299,))
    with shallow_stack():
        formula = formula_of(region, (rlx.spec("f32[4]"),))
    assert formula is not None
    assert len(formula.terms) == 301


def ops_of(op: Op) -> int:
    """How many element-wise ops a kernel does."""
    if isinstance(op, FusedLoop):
        return sum(ops_of(step.op) for step in op.steps)
    return len(op.steps) if isinstance(op, ElementwiseRegion) else 1


def test_a_long_chain_becomes_several_kernels() -> None:
    """LLVM takes longer than in proportion for large functions, and a chain of many thousand ops would be one."""

    def function(x: Any) -> Any:
        y = x
        for _ in range(150):
            y = (y + x) * 0.75
        return y

    fast = rlx.compile(function, rlx.spec("f32[4]"))
    sizes = [ops_of(n.op) for n in fast.report.graph.nodes if not n.is_leaf]

    assert sum(sizes) == 300
    assert 2 <= len(sizes) <= 4
    assert max(sizes) <= 128
    np.testing.assert_allclose(fast(X), function(X), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("config", [None, {"options": {"cpu.tier": "numpy"}}], ids=["auto", "numpy"])
def test_a_program_deeper_than_the_stack_compiles_and_runs(config: Any) -> None:
    steps = sys.getrecursionlimit()
    wanted = expected(steps)

    function = rlx.jit(rlx.value_and_grad(chained(steps)), config=config)
    value, slope = function(X)

    # Each of 1,000 sines amplifies a rounding error by up to 1.5, and settles near the fixed point where it is 0.1.
    np.testing.assert_allclose(value, wanted[0], rtol=1e-5)
    np.testing.assert_allclose(slope, wanted[1:], rtol=1e-3, atol=1e-30)
    assert "value_and_grad" in str(function.report)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_node_of_a_long_program_takes_as_long_as_one_of_a_short_one(stage: str) -> None:
    """Calls do not count what C does inside one of them: searching a list, copying a set."""
    run = STAGES[stage]

    def seconds_a_node(graph: Graph) -> float:
        times = []
        for _ in range(3):
            start = time.process_time()
            run(graph)
            times.append(time.process_time() - start)
        return min(times) / len(graph)

    small, large = (rlx.trace(chained(steps), X) for steps in (500, 10_000))
    assert seconds_a_node(large) < 3 * seconds_a_node(small)
