"""Which walk a kernel takes, by its shape and the machine."""

from __future__ import annotations

import pytest
from attrs import evolve

from rlx_core.ir.dtypes import bool_
from rlx_core.ops.activation import exp
from rlx_core.ops.comparison import greater
from rlx_core.ops.conversion import Cast
from rlx_core.ops.reduction import Max
from rlx_core.ops.softmax import Softmax
from rlx_core.ops.structural import Sum, Transpose
from rlx_gpu.codegen.stages import stages_of
from rlx_gpu.codegen.walks import Machine, Schedule, schedule_of
from tests.codegen.kernels import kernel

WALKS = {
    "a thread a point": (kernel(exp.op(), "f32[100]"), Schedule("point", 1, 256, 1, 100)),
    "four floats a thread": (kernel(exp.op(), "f32[1048576]"), Schedule("point", 4, 256, 1024, 262144)),
    "eight halves a thread": (kernel(exp.op(), "bf16[1048576]"), Schedule("point", 8, 256, 512, 131072)),
    "as many as the widest allows": (
        kernel(greater.op(), "f64[1048576]", "f64[1048576]"),
        Schedule("point", 1, 256, 4096, 1048576),  # two booleans are no whole word
    ),
    "what is no multiple": (kernel(exp.op(), "f32[1048577]"), Schedule("point", 1, 256, 4097, 1048577)),
    "a group a row in registers": (kernel(Softmax(), "f32[256, 1024]"), Schedule("row_group", 4, 256, 256, 256, 1)),
    "a group a row read again": (kernel(Softmax(), "f32[512, 32768]"), Schedule("row_group", 4, 256, 512, 512, 0)),
    "a small group for a row of 70": (kernel(Softmax(), "f32[3, 70]"), Schedule("row_group", 1, 128, 3, 3, 1)),
    "a thread a short row": (kernel(Max(axes=(1,)), "f32[1000, 8]"), Schedule("row_thread", 1, 256, 4, 1000)),
    "a thread a column": (kernel(Sum(axes=(0,)), "f32[500, 70000]"), Schedule("row_thread", 1, 256, 274, 70000)),
}


@pytest.mark.parametrize("name", WALKS)
def test_the_walk_is_the_one_for_the_shape(name: str) -> None:
    one, walk = WALKS[name]
    assert schedule_of(one, Machine()) == walk


def test_few_threads_share_a_row_where_they_run_after_one_another() -> None:
    one = kernel(Softmax(), "f32[256, 1024]")
    assert schedule_of(one, Machine(row_group=4)) == Schedule("row_group", 4, 4, 256, 256, 0)
    flat = kernel(exp.op(), "f32[1048576]")
    assert schedule_of(flat, Machine(row_group=4)) == schedule_of(flat, Machine())


def test_what_does_not_fit_into_a_launch_is_looped_over() -> None:
    one = kernel(exp.op(), "f32[1000]")
    assert not schedule_of(one, Machine()).is_looped
    few = schedule_of(one, Machine(most_groups=2))
    assert few.groups == 2
    assert few.is_looped


def test_what_begins_in_the_middle_of_an_access_is_read_one_by_one() -> None:
    one = kernel(exp.op(), "f32[1048576]")
    for alignment, lanes in ((16, 4), (8, 2), (4, 1)):
        x, y = one.buffers
        assert schedule_of(evolve(one, buffers=(evolve(x, alignment=alignment), y)), Machine()).lanes == lanes
        assert schedule_of(evolve(one, buffers=(x, evolve(y, alignment=alignment))), Machine()).lanes == lanes


def test_operands_that_lie_across_are_read_one_by_one() -> None:
    across = kernel(Transpose((1, 0)), "f32[1024, 1024]")
    walk = schedule_of(across, Machine())
    assert walk.lanes == 4  # the result's neighbours are stored together
    narrow = kernel(Cast(bool_), "f32[1024, 1024]")
    assert schedule_of(narrow, Machine()).lanes == 4


def test_long_rows_that_are_few_are_computed_in_parts() -> None:
    """A launch of parts and one that adds them up for each loop; with results along the row one more."""
    total = stages_of(kernel(Sum(axes=(0,)), "f32[1000000]"), Machine())
    assert [s.parts for s in total.stages] == [245, 0]
    assert total.workspaces == (245 * 4,)
    wide = stages_of(kernel(Softmax(), "f32[2, 1000000]"), Machine())
    assert [s.parts for s in wide.stages] == [245, 0, 245, 0, 0]
    assert wide.stages[-1].kernel.row_size == 1
    for shape in ("f32[300, 1000000]", "f32[2, 10000]"):
        assert len(stages_of(kernel(Softmax(), shape), Machine()).stages) == 1


def test_parts_follow_from_the_shape_and_not_from_the_groups_of_a_launch() -> None:
    one = kernel(Sum(axes=(0,)), "f32[100000000]")
    parts = {stages_of(one, evolve(Machine(), most_groups=most)).stages[0].parts for most in (16, 1024, 65535)}
    assert parts == {1024}
