"""Candidate schedules of products: they differ in code and give the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from harness import EVERY_WIDTH, Kernel, kernel, products_of

from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Builder
from rlx_core.ir.op import Op
from rlx_core.ir.types import spec
from rlx_core.ops.activation import gelu
from rlx_core.ops.fused import FusedMatMulBiasAct
from rlx_core.ops.linalg import MatMul
from rlx_core.tuning.problem import Candidate, TuningProblem
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa, available
from rlx_cpu.native.llvm.objects import Function, key_of
from rlx_cpu.native.llvm.optimise import new_module
from rlx_cpu.native.machine import MACHINE, assuming
from rlx_cpu.native.products.candidates import KERNELS, machine_with, plan_of, product_problem
from rlx_cpu.native.products.gemm import matmul
from rlx_cpu.native.runtime.steps import emit_step
from rlx_cpu.native.sharing import SHARING
from rlx_cpu.native.table import emitter_in, native

ISA = available()[0]


def function_of(op: Op, *types: str, bound: tuple[int, ...] = (), kernel: str = "native_matmul") -> Function:
    builder = Builder()
    node = builder.emit(op, [builder.input(f"x{i}", spec(type)) for i, type in enumerate(types)])[0].node
    operands = tuple(evolve(Place.dense(spec(type)), is_bound=i in bound) for i, type in enumerate(types))
    return Function(kernel, node, Layout(operands, tuple(map(Place.dense, node.types))))


def problem_of(function: Function, isa: Isa = ISA) -> TuningProblem:
    problem = product_problem(function, isa)
    assert problem is not None
    return problem


def emitted(function: Function, isa: Isa = ISA) -> ir.Module:
    module = new_module("test")
    emit_step(module, "f", function, native, isa)
    return module


def test_the_kernels_have_emitters() -> None:
    assert all(emitter_in(native, name) is not None for name in KERNELS)


def test_the_default_comes_first_and_changes_no_parameter() -> None:
    problem = problem_of(function_of(MatMul(), "f32[512, 384]", "f32[384, 1536]", bound=(1,)))
    assert problem.default == Candidate("model")
    assert machine_with(MACHINE, problem.default) == MACHINE
    assert 3 <= len(problem.candidates) <= 20


@pytest.mark.parametrize("rows", [1, 17, 512])
def test_candidates_have_the_tiles_and_the_blocks_of_terms_of_the_default(rows: int) -> None:
    """What the order of summation follows from: otherwise a tuned program would give other bits."""
    function = function_of(MatMul(), f"f32[{rows}, 3000]", "f32[3000, 1536]")
    problem = problem_of(function)

    def sums_of(candidate: Candidate) -> tuple[object, ...]:
        blocks = plan_of(function, evolve(ISA, machine=machine_with(MACHINE, candidate))).blocks
        return blocks.rows, blocks.panels, blocks.depth

    assert len(problem.candidates) > 1
    assert {sums_of(candidate) for candidate in problem.candidates} == {sums_of(problem.default)}


def test_a_problem_prints_on_one_line() -> None:
    product = function_of(MatMul(), "f32[512, 384]", "f32[384, 1536]", bound=(1,))
    assert problem_of(product).line == "product f32[512, 384] @ f32[384, 1536] bound"
    biased = function_of(
        FusedMatMulBiasAct(gelu.op()), "bf16[512, 384]", "bf16[384, 1536]", "bf16[1536]",
        kernel="native_matmul_bias_activation",
    )  # fmt: skip
    line = "product bf16[512, 384] @ bf16[384, 1536], epilogue gelu(x + read1), reads bf16[1536]"
    assert problem_of(biased).line == line


def transposed(function: Function, number: int) -> Function:
    """The function with an operand whose columns lie one after another."""
    operands = list(function.layout.operands)
    place = operands[number]
    assert place is not None
    rows, _ = place.type.static_shape
    itemsize = place.type.dtype.itemsize
    operands[number] = evolve(place, strides=(itemsize, rows * itemsize))
    return evolve(function, layout=evolve(function.layout, operands=tuple(operands)))


def test_small_and_strided_products_and_other_kernels_have_no_problem() -> None:
    large = function_of(MatMul(), "f32[512, 384]", "f32[384, 1536]")
    assert product_problem(large, ISA) is not None
    assert product_problem(function_of(MatMul(), "f32[16, 16]", "f32[16, 16]"), ISA) is None
    assert product_problem(transposed(large, 0), ISA) is None
    assert product_problem(transposed(large, 1), ISA) is None
    assert product_problem(evolve(large, kernel="native_gather"), ISA) is None


def test_strides_of_a_bound_factor_do_not_matter() -> None:
    bound = function_of(MatMul(), "f32[512, 384]", "f32[384, 1536]", bound=(1,))
    assert problem_of(transposed(bound, 1)) == problem_of(bound)


@EVERY_WIDTH
@pytest.mark.parametrize("is_bound", [False, True])
def test_candidates_have_different_code(isa: Isa, is_bound: bool) -> None:
    function = function_of(MatMul(), "f32[512, 384]", "f32[384, 1536]", bound=(1,) if is_bound else ())
    texts = {
        candidate.name: str(emitted(evolve(function, machine=machine_with(MACHINE, candidate)), isa))
        for candidate in problem_of(function, isa).candidates
    }
    default = texts.pop("model")
    assert default == str(emitted(function, isa))
    assert all(text != default for text in texts.values())


def test_library_functions_are_equal_for_all_candidates() -> None:
    """They have no machine in their names, so that programs with several schedules share one."""
    function = function_of(MatMul(), "f32[512, 384]", "f32[384, 1536]", bound=(1,))
    libraries = {
        tuple((name, str(module)) for name, module in emitted(each).apart.items())
        for candidate in problem_of(function).candidates
        for each in [evolve(function, machine=machine_with(MACHINE, candidate))]
    }
    assert len(libraries) == 1
    assert libraries != {()}


def test_keys_of_code_depend_on_the_schedule() -> None:
    function = function_of(MatMul(), "f32[512, 384]", "f32[384, 1536]")
    candidates = problem_of(function).candidates[1:]
    tuned = [evolve(function, machine=machine_with(MACHINE, candidate)) for candidate in candidates]
    assert len({key_of([each], ISA) for each in (function, *tuned)}) == 1 + len(candidates)


def made_with(candidate: Candidate, operands: list[np.ndarray], isa: Isa, bound: tuple[int, ...]) -> Kernel:
    with assuming(machine_with(MACHINE, candidate)):
        return kernel(matmul, MatMul(), operands, isa, bound=bound)


@pytest.mark.medium
@products_of("f32", "f64", "f16", "bf16")
@pytest.mark.parametrize("bound", [(), (1,)], ids=["", "bound"])
@pytest.mark.parametrize(("m", "k", "n"), [(160, 1300, 97), (77, 96, 1030)])
def test_candidates_give_the_same_bits(isa: Isa, of: str, bound: tuple[int, ...], m: int, k: int, n: int) -> None:
    """Also where the depth is cut into several blocks, and for rows and columns that are no multiples of a tile."""
    rng = np.random.default_rng(m)
    operands = [rng.standard_normal(shape).astype(dtype(of).numpy) for shape in ((m, k), (k, n))]
    function = function_of(MatMul(), f"{of}[{m}, {k}]", f"{of}[{k}, {n}]", bound=bound)
    default, *others = problem_of(function, isa).candidates
    expected = made_with(default, operands, isa, bound)(*operands)[0].tobytes()
    assert others
    for candidate in others:
        made = made_with(candidate, operands, isa, bound)
        for threads in (1, 3):
            assert made(*operands, threads=threads)[0].tobytes() == expected, candidate.name


def test_candidates_follow_from_the_assumed_machine() -> None:
    function = function_of(MatMul(), "f32[512, 384]", "f32[384, 1536]")
    isa = evolve(ISA, machine=SHARING)
    problem = problem_of(function, isa)
    assert machine_with(SHARING, problem.default) == SHARING
    assert str(emitted(function, isa)) != str(emitted(function))
