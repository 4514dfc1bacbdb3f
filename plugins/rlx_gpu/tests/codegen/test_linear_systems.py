"""Linear systems by a generated kernel: NumPy's solutions, pivots that are 0 at first, and NaN where a system is singular."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.rlx_gpu.tests.codegen.executors import EXECUTORS, ON_LAVAPIPE, Executor
from plugins.rlx_gpu.tests.codegen.structured import USUAL, check, printed
from plugins.rlx_gpu.tests.codegen.structured_cases import SYSTEMS, SYSTEMS_SMALL
from rlx_core.codegen.linear_systems import LinearSystems
from rlx_core.ir.dtypes import f32, f64
from rlx_core.ir.types import spec
from rlx_gpu.codegen.linear_systems import print_systems, refusal
from rlx_gpu.codegen.opencl import OPENCL
from rlx_gpu.codegen.wgsl import WGSL


@pytest.mark.medium
@pytest.mark.parametrize("executor", [*EXECUTORS, ON_LAVAPIPE], ids=repr)
def test_small_systems_have_the_solutions_of_numpy(executor: Executor) -> None:
    check(executor, SYSTEMS_SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("executor", [*EXECUTORS, ON_LAVAPIPE], ids=repr)
def test_systems_of_every_size_have_the_solutions_of_numpy(executor: Executor) -> None:
    check(executor, SYSTEMS)


def test_a_problem_is_read_from_types_prints_and_means_what_the_op_means() -> None:
    one, stack = (
        LinearSystems.of(spec(a), spec(b)) for a, b in (("f32[3, 3]", "f32[3]"), ("f64[2, 4, 3, 3]", "f64[2, 4, 3, 5]"))
    )
    assert (one, stack) == (LinearSystems(f32, 1, 3, 1), LinearSystems(f64, 8, 3, 5))
    assert str(one) == "solve 1 × f32[3, 3] for 1 right sides"
    a, b = np.array([[0.0, 2.0], [4.0, 0.0]]), np.array([2.0, 4.0])
    np.testing.assert_array_equal(LinearSystems(f64, 1, 2, 1).run(a, b), [1.0, 1.0])
    assert np.isnan(LinearSystems(f64, 1, 2, 1).run(np.ones((2, 2)), b)).all()


def test_what_cannot_be_solved_is_refused_with_the_reason_and_nothing_is_launched_for_nothing() -> None:
    assert refusal(LinearSystems(f64, 1, 3, 1), WGSL) == "f64 in wgsl"
    assert refusal(LinearSystems(f32, 1 << 20, 40, 40), OPENCL) == (
        "systems of fewer than 2147483648 elements, not 3355443200"
    )
    assert printed(print_systems, LinearSystems(f32, 0, 3, 1), OPENCL, USUAL).functions == ()
