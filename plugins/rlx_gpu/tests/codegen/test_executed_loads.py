"""Products with a load in every language: codes and scales are read where a tile of the weight is brought to shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.rlx_gpu.tests.codegen.executors import EXECUTORS, ON_HIP, ON_LAVAPIPE, ON_POCL, Executor, slow
from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.graph import as_results
from rlx_core.ops.fused_matmul_prologue import FusedMatMulPrologue
from rlx_core.testing.cases import OpProgram, programs
from rlx_gpu.codegen.products import print_product
from rlx_gpu.codegen.scalars import scalars_of
from rlx_gpu.codegen.walks import Machine
from rlx_gpu.rows.products import product_with_load

SAMPLES = [p for p in programs((FusedMatMulPrologue,)) if p.is_static]


def layout_of(program: OpProgram) -> Layout:
    node = program.node
    return Layout(
        tuple(Place.dense(t) for t in node.operand_types if t is not None), tuple(map(Place.dense, node.types))
    )


@pytest.mark.parametrize("executor", [*EXECUTORS, ON_LAVAPIPE, *slow(ON_HIP)], ids=repr)
def test_products_with_a_load_are_numpys(executor: Executor) -> None:
    chosen = [
        p
        for p in SAMPLES
        if all(
            executor.language.refusal(t.dtype) is None for t in (*p.node.operand_types, *p.node.types) if t is not None
        )
    ]
    assert len(chosen) >= 4
    problems = [product_with_load(p.node, layout_of(p)) for p in chosen]
    printed = [
        print_product(p, executor.language, executor.machine(Machine()), scalars_of(executor.language))
        for p in problems
    ]
    built = executor.programs(printed)
    for program, code in zip(chosen, printed, strict=True):
        arrays = [x for x in program.draw() if x is not None]
        result = np.zeros(program.node.types[0].static_nbytes, np.uint8)
        operands = [np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in arrays]
        assert not any(built.run(code, [*operands, result]))
        type = program.node.types[0]
        (exact,) = as_results(program.node.op(*arrays))
        tolerance = {"f16": 2e-3, "f32": 1e-5, "f64": 1e-13}[type.dtype.name]
        found = result.view(type.dtype.numpy).reshape(type.static_shape)
        np.testing.assert_allclose(found, exact, rtol=tolerance, atol=10 * tolerance)


def test_a_kernel_reads_codes_and_scales_alone() -> None:
    """One kernel, whose arguments are x, the arrays of the load and the result, and none of the size of the weight in f32."""
    (program,) = (p for p in SAMPLES if "u8[2, 4, 5]" in str(p.sample.types))
    executor = ON_POCL
    problem = product_with_load(program.node, layout_of(program))
    code = print_product(problem, executor.language, executor.machine(Machine()), scalars_of(executor.language))
    assert code.calls[0].buffers == (0, 1, 2, 3, 4, 5)
