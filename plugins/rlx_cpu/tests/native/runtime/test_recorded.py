"""Programs from recorded numbers are equal to planned ones, in each part and in each bit of their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import optree
import pytest
from opened import opened

import rlx_core as rlx
from benchmarks.cases import sizes as cases
from rlx_core import nn
from rlx_core.errors import RlxError
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Graph
from rlx_core.ops import standard_ops
from rlx_core.pipeline import dynamic
from rlx_core.pipeline.compile import compile_graph
from rlx_core.pipeline.compiled import BINDINGS_BEFORE_RECORDING, CompiledProgram
from rlx_core.run.program import PlannedProgram
from rlx_core.testing.cases import programs

FIRST = (5, 9, 70)
"""Sizes that are planned; the last is recorded."""

SIZES = (1, 2, 3, 4, 6, 7, 8, 10, 16, 17, 31, 33, 64, 65, 100, 127, 129, 200, 257, 1025)

RNG = np.random.default_rng(0)


def comparable(value: Any) -> Any:
    """A value whose `==` compares all numbers in it, and arrays and other objects by identity."""
    if isinstance(value, np.ndarray):
        return (value.tolist(), str(value.dtype)) if value.dtype == np.int64 else id(value)
    if isinstance(value, dict):
        return {key: comparable(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [comparable(each) for each in value]
    if attrs.has(type(value)):
        return [type(value), *(comparable(getattr(value, a.name)) for a in attrs.fields(type(value)))]
    return value


def parts_of(program: Any) -> dict[str, Any]:
    """Everything in a program that can depend on its sizes."""
    assert isinstance(program, PlannedProgram)
    code, parts = program.compiled, program.parts
    runs = [code.run_of(part) for part in parts]
    return {
        "plan": comparable(program.plan),
        "steps": [part.steps for part in parts],
        "arguments": comparable(code.arguments),
        "packs": comparable(code.packs),
        "contents": comparable(code.contents),
        "runs": comparable(runs),
        "mode": code.mode(runs),
        "workspace": code.workspace_nbytes,
        "settings": code.settings,
        "origin": code.origin,
    }


def recorded(compiled: CompiledProgram, bindings: list[DimBinding]) -> bool:
    """Plan some bindings, and return whether the last one could be recorded."""
    for binding in bindings:
        compiled.planned_program(compiled.specialize(binding))
        compiled.record(binding)
    assert len(compiled.recorded) == BINDINGS_BEFORE_RECORDING + 1 == len(bindings)
    return compiled.recorded[-1] is not None


def compare(compiled: CompiledProgram, binding: DimBinding) -> bool:
    """Compare the program of a recording with the planned one; false if the recording is not valid for the sizes."""
    found = compiled.recorded_program(binding, lambda: compiled.specialize(binding))
    if found is None:
        return False
    lir = compiled.specialize(binding)
    assert parts_of(found[0]) == parts_of(compiled.planned_program(lir)[1]), str(binding)
    assert list(found[1]) == [value.type for value in lir.graph.outputs]
    return True


def template_of(graph: Graph) -> CompiledProgram | None:
    """Return the template of a graph; `None` if the op refuses a size, or contains graphs, whose sizes are still known."""
    if graph.bodies:
        return None
    try:
        compiled = compile_graph(graph, target="cpu", cache=None)
        for n in FIRST:
            compiled.planned_program(compiled.specialize(DimBinding.of(n=n)))
    except RlxError:
        return None  # sizes that the op refuses
    return compiled if compiled.is_template else None


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 16])
def test_recorded_programs_of_all_ops_are_the_planned_ones(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: Counter[str] = Counter()

    def fail(event: str, facts: Mapping[str, Any]) -> None:
        raise AssertionError(f"{event}: {facts}")

    monkeypatch.setattr(dynamic, "log_event", fail)
    for program in programs(tuple(standard_ops()))[every // 2 :: every]:
        graph = opened(program)
        compiled = None if graph is None else template_of(graph)
        if compiled is not None and recorded(compiled, [DimBinding.of(n=n) for n in FIRST]):
            compared[program.op.name] += sum(compare(compiled, DimBinding.of(n=n)) for n in SIZES)
    assert len(compared) > 400 // every, "of many ops"
    assert sum(compared.values()) > 5 * len(compared), "several sizes take the same branches"


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


DATA, GRAPH = cases.data(), cases.graph_data()


def mlp() -> Any:
    return cases.compiled(DATA, "batch")


def graph_network() -> Any:
    nodes = rlx.spec(f"f32[nodes, {cases.FEATURES}]")
    return rlx.compile(rlx.grad(cases.graph_loss), GRAPH["weights"], nodes, rlx.spec("i32[2, edges]"), nodes)


def graph_inputs(n: int) -> tuple[Any, ...]:
    x = GRAPH["x"][:n]
    return x, np.ascontiguousarray(GRAPH["edges"][:, : cases.DEGREE * n] % n), x


def compiled_op(function: Callable[..., Any], *types: str) -> Callable[[], Any]:
    return lambda: rlx.compile(function, *map(rlx.spec, types))


WHOLE: dict[str, tuple[Callable[[], Any], Callable[[int], tuple[Any, ...]]]] = {
    "mlp": (mlp, lambda n: (DATA["x"][:n],)),
    "graph network": (graph_network, graph_inputs),
    "exp": (compiled_op(rlx.exp, "f32[n, 64]"), lambda n: (numbers(n, 64),)),
    "softmax": (compiled_op(nn.softmax, "f32[8, n]"), lambda n: (numbers(8, n),)),
    "gather": (
        compiled_op(lambda x, i: rlx.take(x, i, axis=0), "f32[n, 16]", "i32[m]"),
        lambda n: (numbers(n, 16), RNG.integers(0, n, 3 * n, dtype=np.int32)),
    ),
    "product": (
        compiled_op(lambda x, w: x.T @ w, "f32[n, 64]", "f32[n, 32]"),
        lambda n: (numbers(n, 64), numbers(n, 32)),
    ),
    "sum": (compiled_op(lambda x: rlx.sum(x, axis=0), "f32[n, 64]"), lambda n: (numbers(n, 64),)),
    "sort": (compiled_op(lambda x: rlx.sort(x, axis=1), "f32[n, 16]"), lambda n: (numbers(n, 16),)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_recorded_programs_compute_the_same_bits(name: str) -> None:
    make, inputs = WHOLE[name]
    recorded, calls = make(), 0
    for n in (100, 101, 102):
        recorded(*inputs(n))
    compiled = recorded.executable.compiled
    assert compiled.recorded[-1] is not None
    planned = make()
    assert planned.executable.compiled is not compiled
    # Both have the recordings of the cached template; this one has no place for any.
    object.__setattr__(planned.executable.compiled, "recorded", [None] * 100)
    for n in range(103, 123):
        arrays, count = inputs(n), len(compiled.recorded)
        results = [recorded(*arrays) for _ in range(4)]  # checked, and by the entry
        expected = planned(*arrays)
        calls += len(compiled.recorded) == count
        for result in results:
            for one, other in zip(optree.tree_leaves(result), optree.tree_leaves(expected), strict=True):
                assert np.asarray(one).tobytes() == np.asarray(other).tobytes(), n
        assert compare(compiled, recorded.executable._shared.latest.lir.origin.sizes)
    assert calls > 12, "most of the sizes were not planned"
