"""A plan asks of its kernels only what their rows say that they can: plans for one table, looked at with another."""

from __future__ import annotations

import pytest
from attrs import evolve

from rlx_core.ir.graph import Builder
from rlx_core.ir.types import spec
from rlx_core.ops.arithmetic import add
from rlx_core.ops.movement import Pad, concat, pad
from rlx_core.ops.structural import transpose
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.pipeline.planning.planner import make_lir
from rlx_core.pipeline.planning.verify_steps import step_faults


def table(name="add", **row) -> KernelTable:
    """A table with one row, for additions."""
    made = KernelTable("test")
    made.register(add.op, name=name, **row)(lambda *_, **__: None)
    return made


def plan(kernels: KernelTable, make):
    """`make(x, y)` of two donated inputs, as planned for these kernels."""
    builder = Builder()
    x, y = builder.input("x", spec("f32[16, 16]")), builder.input("y", spec("f32[16, 16]"))
    target = Target("test", kernels, alignment=64)
    return make_lir(builder.finish([make(x, y)]), target, donations={"x": None, "y": None})


ABLE = {"in_place": (0, 1), "accepts_strides": True, "writes_strides": True, "workspace": lambda node: 24}


def turned_sum(x, y):
    return add(transpose(x, (1, 0)), y)


LACKING = {
    "the kernel": (table("other", **ABLE), add, "the target has no kernel add"),
    "the dtype": (table(dtypes="f64", **ABLE), add, "add takes f64, not f32"),
    "the workspace": (
        table(**{**ABLE, "workspace": lambda node: 100}),
        add,
        "needs 100 bytes of workspace, and has 24",
    ),
    "strides": (table(**{**ABLE, "accepts_strides": False}), turned_sum, "reads densely, and %2 is strided"),
    "gaps": (
        table(**{**ABLE, "writes_strides": False}),
        lambda x, y: concat([add(x, y), add(y, y)], axis=1),
        "writes densely, and %2 is strided",
    ),
    "taking over": (table(**{**ABLE, "in_place": ()}), add, "does not say that result 0 may take over operand 0"),
    "reading both alike": (
        table(**{**ABLE, "in_place": (0,)}),
        lambda x, y: add(x, x),
        "add reads what result 0 takes over as another operand too",
    ),
}


@pytest.mark.parametrize(("kernels", "make", "says"), LACKING.values(), ids=LACKING)
def test_what_a_kernel_lacks_is_said(kernels, make, says):
    lir = plan(table(**ABLE), make)

    assert step_faults(lir, table(**ABLE)) == []
    assert says in "\n".join(map(repr, step_faults(lir, kernels)))


def test_only_a_kernel_that_says_so_takes_over_with_a_second_result():
    lir = plan(table(**ABLE), add)
    second = evolve(lir, steps=(evolve(lir.steps[0], in_place={1: 0}),))

    assert step_faults(second, table(**ABLE, is_each_in_place=True)) == []
    assert step_faults(second, table(**ABLE, is_generated=True)) == []
    assert "does not say that result 1 may" in repr(step_faults(second, table(**ABLE)))


def test_a_part_needs_a_kernel_that_writes_what_is_around_it():
    def padding(*, completes_parts: bool) -> KernelTable:
        kernels = table(**ABLE)
        kernels.register(Pad, name="pad", completes_parts=completes_parts)(lambda *_, **__: None)
        return kernels

    lir = plan(padding(completes_parts=True), lambda x, y: pad(add(x, y), lo=(1, 0), hi=(0, 0)))

    assert step_faults(lir, padding(completes_parts=True)) == []
    assert "pad writes all of its result, and %2 lies in it" in repr(step_faults(lir, padding(completes_parts=False)))


def test_nothing_is_found_in_plans_for_the_target_that_they_were_made_for(generated, fake_target):
    target = fake_target(workspace=24, accepts_strides=False)
    for seed in range(40):
        graph, _ = generated(seed)
        assert step_faults(make_lir(graph, target), target.kernels) == []
