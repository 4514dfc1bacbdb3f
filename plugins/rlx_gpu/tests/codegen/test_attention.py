"""Attention and its cotangents: every mask, layout, cap and bias, grouped heads, queries that see nothing."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from plugins.rlx_gpu.tests.codegen.executors import EXECUTORS, ON_CUDA, ON_CUDA_TF32, ON_METAL, Executor
from plugins.rlx_gpu.tests.codegen.structured import USUAL, Case, check, printed, static_samples
from plugins.rlx_gpu.tests.codegen.structured_cases import (
    ATTENTIONS,
    ATTENTIONS_SMALL,
    BACKWARDS,
    BACKWARDS_SMALL,
    BACKWARDS_SMALLEST,
    LITTLE,
    OVER_VALID_KEYS,
    ROOMY,
    UNIT_ATTENTIONS,
    UNIT_ATTENTIONS_OF_F32,
    UNIT_ATTENTIONS_SMALL,
    UNIT_BACKWARDS,
    UNIT_BACKWARDS_OF_F32,
    UNIT_BACKWARDS_SMALL,
    attention,
    attention_of,
    edges,
)
from rlx_core.ir.op import Op
from rlx_core.ops.attention import Attention, AttentionBackward
from rlx_gpu.codegen.cuda import CUDA, HIP
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.metal import METAL
from rlx_gpu.codegen.units.head_tiles import unit_for_attention, unit_refusal
from rlx_gpu.codegen.walks import Machine


def rounded(cases: list[Case]) -> list[Case]:
    """Cases of f32 whose factors are rounded to TF32, to ten bits of mantissa."""
    return [evolve(case, tolerance=2.0**-10) for case in cases]


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize(
    "cases", [ATTENTIONS_SMALL, pytest.param(BACKWARDS_SMALL, marks=pytest.mark.slow)], ids=["forward", "backward"]
)
def test_tiles_of_queries_and_keys_give_what_the_op_means(executor: Executor, cases: list[Case]) -> None:
    check(executor, cases)


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_numbers_of_valid_keys_are_read_at_run_time(executor: Executor) -> None:
    check(executor, OVER_VALID_KEYS)


def test_matrix_units_read_numbers_of_valid_keys() -> None:
    types = ("bf16[2, 35, 40]", "bf16[2, 70, 40]", "bf16[2, 70, 40]", None, None, "i64[2]")
    check(ON_CUDA, [attention(Attention, ROOMY, *types, mask_kind="causal", ranges={"lengths": (5, 60)})])


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_cotangents_of_heads_that_share_keys_are_those_of_the_op(executor: Executor) -> None:
    check(executor, BACKWARDS_SMALLEST)


@pytest.mark.parametrize(
    ("executor", "cases"),
    [
        pytest.param(ON_CUDA, UNIT_ATTENTIONS_SMALL, id="cuda-small"),
        pytest.param(ON_CUDA, UNIT_BACKWARDS_SMALL, id="cuda-small-backward"),
        pytest.param(ON_CUDA_TF32, rounded(UNIT_ATTENTIONS_OF_F32[:1]), id="cuda-tf32-small"),
        pytest.param(ON_CUDA_TF32, rounded(UNIT_BACKWARDS_OF_F32[:1]), id="cuda-tf32-small-backward"),
        pytest.param(ON_METAL, UNIT_ATTENTIONS_OF_F32[:1], id="metal-small"),
        pytest.param(ON_METAL, UNIT_BACKWARDS_OF_F32[:1], id="metal-small-backward"),
        pytest.param(ON_CUDA, UNIT_ATTENTIONS, id="cuda-every", marks=pytest.mark.slow),
        pytest.param(ON_CUDA, UNIT_BACKWARDS, id="cuda-every-backward", marks=pytest.mark.slow),
        pytest.param(
            ON_CUDA_TF32,
            rounded([UNIT_ATTENTIONS_OF_F32[0], *UNIT_ATTENTIONS_OF_F32[2:]]),
            id="cuda-tf32-every",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ON_CUDA_TF32,
            # The others have fewer rows than a unit, or more features than there is room for.
            rounded(UNIT_BACKWARDS_OF_F32[:3:2]),
            id="cuda-tf32-every-backward",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ON_METAL,
            [*UNIT_ATTENTIONS_SMALL, *UNIT_ATTENTIONS, *UNIT_ATTENTIONS_OF_F32],
            id="metal-every",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ON_METAL,
            # The tiles of 128 features of f32 are more than there is room for.
            [*UNIT_BACKWARDS_SMALL, *UNIT_BACKWARDS, *UNIT_BACKWARDS_OF_F32[:-1]],
            id="metal-every-backward",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_units_multiply_queries_keys_and_values(executor: Executor, cases: list[Case]) -> None:
    for case in cases:
        machine = executor.machine(case.machine)
        functions = printed(case.print, case.problem, executor.language, machine).functions
        multiplying = [f for f in functions if f"rlx_multiply_{case.problem.problem.stored}" in f.text]
        assert all(f.name.startswith("bias") for f in functions if f not in multiplying)
        assert multiplying
    check(executor, cases)


def test_cotangents_of_wide_keys_and_values_are_launches_of_their_own() -> None:
    """A thread has not the registers for the sums of both."""
    wide, narrow = (
        printed(case.print, case.problem, CUDA, ON_CUDA.machine(case.machine)).functions for case in UNIT_BACKWARDS[:2]
    )
    assert [f.name.rpartition("_")[0] for f in narrow] == [
        "attention_statistics",
        "attention_queries",
        "attention_keys",
    ]
    assert [f.name.rpartition("_")[0] for f in wide][2:] == ["attention_keys", "attention_values"]


def test_units_are_for_what_they_have_rows_and_registers_for() -> None:
    def reason(
        *types: str, op: type[Op] = Attention, machine: Machine = ROOMY, language: GpuDialect = CUDA, **attributes: Any
    ) -> str | None:
        case = attention(op, ON_CUDA.machine(machine), *types, **attributes)
        found = unit_refusal(case.problem, language, case.machine)
        assert unit_for_attention(case.problem, language, case.machine) is (None if found else language.matrix_unit)
        return found

    for op in (Attention, AttentionBackward):
        assert reason(*["bf16[1, 16, 40]"] * 3, op=op) is None
        assert reason("bf16[1, 15, 40]", *["bf16[1, 64, 40]"] * 2, op=op) == "at least 16 queries, not 15"
        assert reason(*["f32[1, 64, 40]"] * 3, op=op) == "operands of one dtype among bf16 f16"
        assert reason(*["bf16[1, 64, 272]"] * 3, head_dim=136, op=op) == "at most 128 features, not 136"
        assert reason(*["bf16[1, 64, 40]"] * 3, op=op, machine=evolve(ROOMY, group=64)) == (
            "groups of 4 subgroups of 32 threads"
        )
        assert reason(*["f32[1, 64, 40]"] * 3, op=op, language=METAL) is None
        assert reason("f32[1, 7, 40]", *["f32[1, 64, 40]"] * 2, op=op, language=METAL) == "at least 8 queries, not 7"
    little = evolve(ROOMY, shared_nbytes=10240)  # two tiles of 64 rows of 32 and 8 more, and no statistics
    assert reason(*["bf16[1, 64, 40]"] * 3, machine=little) is None
    assert reason(*["bf16[1, 64, 40]"] * 3, op=AttentionBackward, machine=little) == (
        "11008 bytes of shared memory, not 10240"
    )
    case = attention(Attention, ON_CUDA.machine(USUAL), *["bf16[1, 16, 40]"] * 3)
    assert unit_refusal(case.problem, HIP, case.machine) == "a language with matrix units"


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("op", [Attention, AttentionBackward])
def test_nothing_to_see_and_a_bias_of_one_number_are_computed_too(executor: Executor, op: type) -> None:
    check(executor, edges(op))


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("cases", [ATTENTIONS, BACKWARDS], ids=["forward", "backward"])
def test_every_mask_and_element_gives_what_the_op_means(executor: Executor, cases: list[Case]) -> None:
    check(executor, cases)


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("op", [Attention, AttentionBackward])
def test_samples_of_the_op_have_its_meaning(executor: Executor, op: type) -> None:
    cases = [attention_of(instance, sample, LITTLE) for instance, sample in static_samples(op)]
    check(executor, cases)


def test_a_problem_prints_one_line() -> None:
    (case,) = BACKWARDS_SMALL
    assert str(case.problem) == "attention_backward f32[1, 2 over 1, 40, 20] on 45 keys of 18 causal cap 1.5"
