"""Loop kernels of generated programs, as the passes fuse them and the planner lays them out, run as the interpreter runs them."""

from __future__ import annotations

import pytest

from plugins.rlx_gpu.tests.codegen.cases import MACHINES
from plugins.rlx_gpu.tests.codegen.executors import EXECUTORS, Executor
from plugins.rlx_gpu.tests.codegen.test_executed_loops import check
from rlx_core.codegen import check_kernel, parse_kernel
from rlx_core.codegen.loops import Kernel
from rlx_core.draw.emission import Planned, emit
from rlx_core.ops import standard_ops
from rlx_core.pipeline.compile import compile_graph
from rlx_core.testing.generate import generate

pytest.importorskip("rlx_cpu")

OPS = {op.name: op for op in standard_ops()}


def kernels_of(seed: int) -> list[Kernel]:
    """The kernels of a program."""
    made = compile_graph(generate(seed).graph, target="cpu")
    text = emit(Planned(made.lir, made.backend, made.target), "loops")
    # A step may be several kernels.
    parts = [kernel for step in text.split("# step ") for kernel in step.split("\nkernel ")[1:]]
    return [check_kernel(parse_kernel("kernel " + part, OPS)) for part in parts]


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize(
    ("seeds", "machines"),
    [(range(10, 11), ["small"]), pytest.param(range(60), list(MACHINES), marks=pytest.mark.slow)],
    ids=["one", "all"],
)
def test_kernels_of_generated_programs_are_the_interpreters(
    executor: Executor, seeds: range, machines: list[str]
) -> None:
    found = list(dict.fromkeys(k for seed in seeds for k in kernels_of(seed)))
    assert found
    for machine in machines:
        for start in range(0, len(found), 40):
            check(executor, found[start : start + 40], MACHINES[machine])
