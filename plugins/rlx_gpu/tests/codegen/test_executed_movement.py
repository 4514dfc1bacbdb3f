"""Movement in boxes against NumPy: ops that are boxes, elements of every size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from plugins.rlx_gpu.tests.codegen.cases import MACHINES, printed
from plugins.rlx_gpu.tests.codegen.executors import EXECUTORS, Executor
from rlx_core.codegen import check_kernel, run_kernel
from rlx_core.codegen.loops import Kernel
from rlx_core.codegen.movement.kernels import kernels_of_movement
from rlx_core.codegen.movement.tilings import TILINGS
from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.graph import infer
from rlx_core.testing.cases import OpProgram, programs, typed
from rlx_gpu.codegen.kernels import refusal
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.scalars import scalars_of

SAMPLES = [
    p
    for p in programs(tuple(TILINGS))
    if p.is_static and [t for t in p.node.operand_types if t is not None] == list(p.graph.input_types.values())
]
"""Those whose operands are the inputs, without casts before them."""


def kernels_of(program: OpProgram) -> tuple[Kernel, ...]:
    op, types = program.node.op, program.node.operand_types
    layout = Layout(
        tuple(None if t is None else Place.dense(t) for t in types), tuple(map(Place.dense, infer(op, types)))
    )
    return tuple(check_kernel(k) for k in kernels_of_movement(op, layout))


def test_every_sample_moves_as_its_op_says() -> None:
    """By the interpreter of the loop language, since a box is a kernel like any other."""
    for program in SAMPLES:
        check(program, lambda kernel, data: run_kernel(kernel, data))


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("start", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_samples_move_on_a_device(executor: Executor, start: int) -> None:
    chosen = [p for p in SAMPLES[start :: 40 if start == 0 else 3] if is_had(executor.language, p)]
    machine = executor.machine(MACHINES["small"])
    made = {k: printed(k, executor.language, machine) for p in chosen for k in kernels_of(p)}
    programs_ = executor.programs(made.values())
    for program in chosen:
        check(program, lambda kernel, data: programs_.run(made[kernel], data))


def is_had(language: GpuDialect, program: OpProgram) -> bool:
    """Whether a language has the elements of a program."""
    return all(refusal(k, language, scalars_of(language)) is None for k in kernels_of(program))


def check(program: OpProgram, run: Callable[[Kernel, list[np.ndarray | None]], object]) -> None:
    arrays = program.draw()
    waiting = iter(arrays)
    operands = [None if t is None else next(waiting) for t in program.node.operand_types]
    want = typed(program.graph, arrays)
    results = [np.full(t.static_shape, 1, t.dtype.numpy) for t in infer(program.node.op, program.node.operand_types)]
    data = [None if x is None else np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (*operands, *results)]
    for kernel in kernels_of(program):
        run(kernel, data)
    for w, g in zip(want, data[len(operands) :], strict=True):
        assert g is not None, "results are there"
        assert g.tobytes() == np.ascontiguousarray(w).tobytes(), program
