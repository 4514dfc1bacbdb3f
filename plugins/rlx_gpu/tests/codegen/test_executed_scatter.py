"""Scatter by owners against a loop over the updates: every mode, what becomes of indices outside, narrow storage."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.rlx_gpu.tests.codegen.executors import EXECUTORS, Executor
from plugins.rlx_gpu.tests.codegen.problems import COLUMNS, ROWS, UPDATES
from plugins.rlx_gpu.tests.codegen.problems import SCATTER_CASES as CASES
from plugins.rlx_gpu.tests.codegen.problems import ScatterCase as Case
from rlx_core.codegen.faults import Report
from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.dtypes import f32, i32
from rlx_core.ir.types import TensorType
from rlx_core.ops.indexing import ScatterAdd
from rlx_gpu.codegen.scalars import scalars_of
from rlx_gpu.codegen.scatter import print_scatter
from rlx_gpu.codegen.walks import Machine
from rlx_gpu.rows.scatter import problem_of


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize(
    ("machine", "step"),
    [
        (Machine(group=32, most_groups=1), 17),
        (Machine(group=32, most_groups=1, few_updates=0), 7),
        pytest.param(Machine(few_updates=0), 1, marks=pytest.mark.slow),
        pytest.param(Machine(group=32, most_groups=1), 5, marks=pytest.mark.slow),
        pytest.param(Machine(), 1, marks=pytest.mark.slow),
    ],
    ids=["some in few groups", "some sorted", "all sorted", "more in few groups", "all as usual"],
)
def test_scatter_is_a_loop_over_the_updates(executor: Executor, machine: Machine, step: int) -> None:
    cases = CASES[::step]
    language, machine = executor.language, executor.machine(machine)
    made = [print_scatter(c.problem, language, machine, scalars_of(language)) for c in cases]
    programs = executor.programs(made)
    for case, functions in zip(cases, made, strict=True):
        rng = np.random.default_rng(1)
        base = rng.integers(-5, 5, (ROWS, COLUMNS)).astype(case.dtype.numpy)
        updates = rng.integers(-5, 5, (UPDATES, COLUMNS)).astype(case.dtype.numpy)
        index = rng.integers(-2, ROWS + 2, UPDATES).astype(np.int32)
        result = np.zeros_like(base)
        reports = programs.run(functions, [x.reshape(-1).view(np.uint8) for x in (base, index, updates, result)])
        np.testing.assert_array_equal(result, wanted(case, base, index, updates))
        first = int(np.flatnonzero((index < 0) | (index >= ROWS))[0])
        assert reports == ([Report(first, int(index[first]))] if case.outside == "report" else [])


@pytest.mark.medium
@pytest.mark.parametrize("few_updates", [0, 32], ids=["sorted", "searched"])
@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_the_update_that_is_reported_is_numbered_among_those_of_all_batches(
    executor: Executor, few_updates: int
) -> None:
    """Two batches have an index outside at the same place of their own; their bits must not be mixed."""
    shapes = (TensorType(f32, (2, 3)), TensorType(i32, (2, 3)), TensorType(f32, (2, 4)))
    places = [Place.dense(t) for t in shapes]
    problem = problem_of(ScatterAdd(size=4, axis=1, batch_dims=1), Layout(tuple(places[:2]), (places[2],)))
    language, machine = executor.language, executor.machine(Machine(group=32, few_updates=few_updates))
    made = print_scatter(problem, language, machine, scalars_of(language))
    index = np.array([[0, 1, 2], [0, -6, 9]], np.int32)
    for first, wrong in (((1, 1), -6), ((0, 1), 5)):
        index[0, 1] = wrong if first == (0, 1) else 1
        buffers = [np.ones((2, 3), np.float32), index, np.zeros((2, 4), np.float32)]
        reports = executor.programs([made]).run(made, [b.reshape(-1).view(np.uint8) for b in buffers])
        assert reports == [Report(first[0] * 3 + first[1], wrong)]


def wanted(case: Case, base: np.ndarray, index: np.ndarray, updates: np.ndarray) -> np.ndarray:
    found = base.copy()
    for i, update in zip(np.clip(index, 0, ROWS - 1) if case.outside == "clip" else index, updates, strict=True):
        if 0 <= i < ROWS:
            combined = {
                "set": update,
                "add": found[i] + update,
                "max": np.maximum(found[i], update),
                "min": np.minimum(found[i], update),
            }
            found[i] = combined[case.mode]
    return found
