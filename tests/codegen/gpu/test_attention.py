"""Attention and its cotangents: every mask, layout, cap and bias, grouped heads, queries that see nothing."""

from __future__ import annotations

import pytest

from rlx_core.ops.attention import Attention, AttentionBackward
from tests.codegen.gpu.executors import EXECUTORS, Executor
from tests.codegen.gpu.structured import Case, check, static_samples
from tests.codegen.gpu.structured_cases import (
    ATTENTIONS,
    ATTENTIONS_SMALL,
    BACKWARDS,
    BACKWARDS_SMALL,
    BACKWARDS_SMALLEST,
    LITTLE,
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
