"""Attention and its cotangents: every mask, layout, cap and bias, grouped heads, queries that see nothing."""

from __future__ import annotations

from typing import Any

import pytest

from rlx_core.codegen.gpu.cuda import CUDA, HIP
from rlx_core.codegen.gpu.languages import Language
from rlx_core.codegen.gpu.metal import METAL
from rlx_core.codegen.gpu.units.head_tiles import unit_for_attention
from rlx_core.ops.attention import Attention, AttentionBackward
from tests.codegen.gpu.executors import EXECUTORS, ON_CUDA, ON_METAL, Executor
from tests.codegen.gpu.structured import USUAL, Case, check, printed, static_samples
from tests.codegen.gpu.structured_cases import (
    ATTENTIONS,
    ATTENTIONS_SMALL,
    BACKWARDS,
    BACKWARDS_SMALL,
    BACKWARDS_SMALLEST,
    LITTLE,
    UNIT_ATTENTIONS,
    UNIT_ATTENTIONS_OF_F32,
    UNIT_ATTENTIONS_SMALL,
    attention,
    attention_of,
    edges,
)


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize(
    "cases", [ATTENTIONS_SMALL, pytest.param(BACKWARDS_SMALL, marks=pytest.mark.slow)], ids=["forward", "backward"]
)
def test_tiles_of_queries_and_keys_give_what_the_op_means(executor: Executor, cases: list[Case]) -> None:
    check(executor, cases)


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_cotangents_of_heads_that_share_keys_are_those_of_the_op(executor: Executor) -> None:
    check(executor, BACKWARDS_SMALLEST)


@pytest.mark.parametrize(
    ("executor", "cases"),
    [
        pytest.param(ON_CUDA, UNIT_ATTENTIONS_SMALL, id="cuda-small"),
        pytest.param(ON_METAL, UNIT_ATTENTIONS_OF_F32[:1], id="metal-small"),
        pytest.param(ON_CUDA, UNIT_ATTENTIONS, id="cuda-every", marks=pytest.mark.slow),
        pytest.param(
            ON_METAL,
            [*UNIT_ATTENTIONS_SMALL, *UNIT_ATTENTIONS, *UNIT_ATTENTIONS_OF_F32],
            id="metal-every",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_units_multiply_queries_keys_and_values(executor: Executor, cases: list[Case]) -> None:
    for case in cases:
        machine = executor.machine(case.machine)
        text = printed(case.print, case.problem, executor.language, machine).functions[0].text
        assert f"rlx_multiply_{case.problem.problem.stored}" in text
    check(executor, cases)


def test_units_are_for_what_they_have_rows_and_registers_for() -> None:
    def unit_for(*types: str, language: Language = CUDA, **attributes: Any) -> object:
        case = attention(Attention, ON_CUDA.machine(USUAL), *types, **attributes)
        return unit_for_attention(case.problem, language, case.machine)

    assert unit_for(*["bf16[1, 16, 40]"] * 3) is CUDA.matrix_unit
    assert unit_for("bf16[1, 15, 40]", *["bf16[1, 64, 40]"] * 2) is None
    assert unit_for(*["f32[1, 64, 40]"] * 3) is None
    assert unit_for(*["f32[1, 64, 40]"] * 3, language=METAL) is METAL.matrix_unit
    assert unit_for("f32[1, 7, 40]", *["f32[1, 64, 40]"] * 2, language=METAL) is None
    assert unit_for(*["bf16[1, 64, 272]"] * 3, head_dim=136) is None
    case = attention(Attention, ON_CUDA.machine(USUAL), *["bf16[1, 16, 40]"] * 3)
    assert unit_for_attention(case.problem, HIP, case.machine) is None


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
