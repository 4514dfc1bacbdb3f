"""Every op says what it is to a precision policy: nothing is left to a default."""

from __future__ import annotations

from typing import get_args

import pytest

from rlx_core.ir.op import Category, Op
from rlx_core.ops import standard_ops

OPS = standard_ops()

LEFT_ALONE = [
    *("softmax", "log_softmax", "log_sum_exp", "cum_log_sum_exp", "softmax_cross_entropy_with_logits", "var", "std"),
    *("layer_norm", "rms_norm", "group_norm", "layer_norm2d", "batch_norm", "layer_norm_backward_input"),
    *("fused_residual_rms_norm", "dense_solve", "call"),
]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_an_op_states_its_category(op: type[Op]) -> None:
    stated = [vars(base)["category"] for base in op.__mro__ if "category" in vars(base) and base is not Op]
    assert stated, f"{op.name} states no category: give it one of {', '.join(get_args(Category))}"
    assert stated[0] in get_args(Category)


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_norms_softmax_losses_and_solves_are_left_in_their_precision(name: str) -> None:
    (op,) = (op for op in OPS if op.name == f"rlx.{name}")
    assert op.category == "boundary"


def test_an_op_that_does_not_say_what_it_is_is_left_alone() -> None:
    assert Op.category == "boundary"
