"""Which values need no bytes of their own."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from rlx_core.ir.dtypes import f32
from rlx_core.ir.graph import Builder, Value
from rlx_core.ir.lir import Lir
from rlx_core.ir.strides import extent, is_dense
from rlx_core.ir.types import spec
from rlx_core.ir.verify_lir import verify_lir
from rlx_core.ops.arithmetic import add, negative, subtract
from rlx_core.ops.conversion import cast
from rlx_core.ops.movement import concat, narrow, pad
from rlx_core.ops.structural import expand, reshape, sum_axes, transpose
from rlx_core.pipeline.planning.planner import PlanOptions, make_lir

X = spec("f32[4, 16]")

DENSE = {
    "reshape": lambda x: reshape(x, (8, 8)),
    "cast to the same dtype": lambda x: cast(x, to=f32),
    "narrow of the first axis": lambda x: narrow(x, axis=0, start=1, length=2),
    "narrow below axes of one": lambda x: narrow(reshape(x, (1, 1, 64)), axis=2, start=8, length=4),
    "transpose of an axis of one": lambda x: transpose(reshape(x, (4, 1, 16)), (1, 0, 2)),
    "expand that repeats nothing": lambda x: expand(x, (1, 4, 16)),
    "transposed twice": lambda x: transpose(transpose(x, (1, 0)), (1, 0)),
}
STRIDED = {
    "transpose": lambda x: transpose(x, (1, 0)),
    "expand": lambda x: expand(x, (3, 4, 16)),
    "inner narrow": lambda x: narrow(x, axis=1, start=2, length=4),
    "stepped narrow": lambda x: narrow(x, axis=0, start=0, length=2, step=2),
    "reshape inside a transpose": lambda x: reshape(transpose(x, (1, 0)), (4, 4, 4)),
}


def planned(target, make, **options) -> tuple[Lir, Value, Value]:
    """`negative(make(h))` for an intermediate h: the plan, h, and the value that `make` returned."""
    builder = Builder()
    h = add(builder.input("x", X), 1.0)
    v = make(h)
    return make_lir(builder.finish([negative(v)]), target, options=PlanOptions(**options)), h, v


@pytest.mark.parametrize("make", DENSE.values(), ids=DENSE)
@pytest.mark.parametrize("accepts_strides", [True, False])
def test_a_dense_view_is_taken_whoever_reads_it(fake_target, make, accepts_strides):
    lir, h, v = planned(fake_target(accepts_strides=accepts_strides), make)

    assert lir.root_of(v) is lir.root_of(h)
    assert is_dense(v.type, lir.aliases[v].strides)


@pytest.mark.parametrize("make", STRIDED.values(), ids=STRIDED)
def test_a_strided_view_is_taken_when_every_reader_accepts_strides(fake_target, make):
    lir, h, v = planned(fake_target(), make)

    assert lir.root_of(v) is lir.root_of(h)
    assert not is_dense(v.type, lir.aliases[v].strides)


@pytest.mark.parametrize("make", STRIDED.values(), ids=STRIDED)
@pytest.mark.parametrize("refusal", [{"accepts_strides": False}, {"accepts_views": False}], ids=str)
def test_a_strided_view_is_copied_when_a_reader_or_the_target_refuses(fake_target, make, refusal):
    lir, h, v = planned(fake_target(**refusal), make)

    assert is_dense(v.type, lir.aliases[v].strides)
    assert lir.root_of(v) is not lir.root_of(h)


def test_a_strided_view_that_leaves_the_program_is_written_densely(fake_target):
    builder = Builder()
    h = add(builder.input("x", X), 1.0)
    lir = make_lir(builder.finish([transpose(h, (1, 0))]), fake_target())

    assert [s.node.op.name for s in lir.steps] == ["rlx.add", "rlx.transpose"]


def test_a_chain_of_views_has_one_root_and_summed_offsets(fake_target):
    def chain(h):
        rows = narrow(h, axis=0, start=1, length=3)
        return narrow(narrow(rows, axis=0, start=1, length=2), axis=1, start=3, length=5)

    lir, h, v = planned(fake_target(), chain)

    assert lir.aliases[v].root is h
    assert lir.aliases[v].byte_offset == 2 * 64 + 3 * 4
    assert lir.aliases[v].strides == (64, 4)


def test_views_can_be_turned_off(fake_target):
    lir, _, v = planned(fake_target(), DENSE["reshape"], views=False, in_place=False)

    assert not lir.aliases
    assert v in lir.slots


@pytest.mark.medium
def test_every_view_lies_inside_its_root(generated, fake_target):
    for seed in range(100):
        graph, _ = generated(seed)
        lir = make_lir(graph, fake_target())
        for value, alias in lir.aliases.items():
            first, end = extent(value.type, alias.strides)
            assert alias.byte_offset + first >= 0
            assert alias.byte_offset + end <= alias.root.type.nbytes
            assert alias.root not in lir.aliases


# -------------------------------------------------------------------------------------- concatenation


def joined(target, axis: int, *operands: int, extra=None) -> tuple[Lir, list[Value], Value]:
    """The concatenation of intermediates (by number; a number twice is one value twice)."""
    builder = Builder()
    x = builder.input("x", X)
    made = [add(x, float(i)) for i in range(max(operands) + 1)]
    y = concat([made[i] for i in operands], axis=axis)
    outputs = [negative(y)] if extra is None else [negative(y), extra(made, x)]
    return make_lir(builder.finish(outputs), target), made, y


def test_operands_are_computed_inside_the_concatenation(fake_target):
    lir, made, y = joined(fake_target(), 0, 0, 1, 2)

    assert all(lir.root_of(v) is lir.root_of(y) for v in made)
    assert [lir.aliases[v].byte_offset for v in made] == [0, 256, 512]
    assert "rlx.concat" not in [s.node.op.name for s in lir.steps]


@pytest.mark.parametrize(
    ("axis", "operands", "extra"),
    [
        (1, (0, 1), None),
        (0, (0, 0), None),
        (0, (0, 1), lambda made, x: made[0]),
        (0, (0, 1), lambda made, x: concat([made[1], made[0]], axis=0)),
    ],
    ids=["not dense inside the result", "one operand twice", "an operand is an output", "already owned by another"],
)
def test_a_concatenation_with_a_conflicting_operand_runs(fake_target, axis, operands, extra):
    lir, _, _ = joined(fake_target(), axis, *operands, extra=extra)

    assert "rlx.concat" in [s.node.op.name for s in lir.steps]


def test_operands_are_computed_between_one_anothers_rows_where_their_kernels_can(fake_target):
    lir, made, y = joined(fake_target(writes_strides=True), 1, 0, 1, 2)

    assert all(lir.root_of(v) is lir.root_of(y) for v in made)
    assert [(lir.aliases[v].byte_offset, lir.aliases[v].strides) for v in made] == [
        (i * 64, (192, 4)) for i in range(3)
    ]
    assert "rlx.concat" not in [s.node.op.name for s in lir.steps]
    assert verify_lir(lir) == []
    clashing = evolve(lir.aliases[made[1]], byte_offset=32)
    (fault, *_) = verify_lir(evolve(lir, aliases={**lir.aliases, made[1]: clashing}))
    assert "lies at" in fault.message


HALF = spec("f32[4, 8]")
UNFIT = {
    "rows are shorter than a line": lambda x: concat(
        [add(narrow(x, axis=1, start=i, length=8), 1.0) for i in (0, 8)], axis=1
    ),
    "a row begins inside a line": lambda x: concat([add(x[:, :8], 1.0), add(x, 1.0)], axis=1),
    "an operand is read through a view": lambda x: (
        lambda a, b: add(concat([a, b], axis=1), add(reshape(a, (64,)), 1.0)[0])
    )(add(x, 1.0), add(x, 2.0)),
    "an operand is a view": lambda x: concat(
        [reshape(add(reshape(x, (64,)), float(i)), (4, 16)) for i in (0, 1)], axis=1
    ),
    "an operand is joined itself": lambda x: concat([add(x, 1.0), concat([add(x, 2.0), add(x, 3.0)], axis=1)], axis=1),
}


@pytest.mark.parametrize("make", UNFIT.values(), ids=UNFIT)
def test_rows_that_would_not_fit_are_joined_by_a_step(fake_target, make):
    builder = Builder()
    x = builder.input("x", X)
    lir = make_lir(builder.finish([negative(make(x))]), fake_target(writes_strides=True))

    assert "rlx.concat" in [s.node.op.name for s in lir.steps]
    assert verify_lir(lir) == []


@pytest.mark.parametrize(
    "refusal",
    [{"writes_strides": False}, {"writes_strides": True, "accepts_views": False}],
    ids=["the writer cannot", "the target has no strided views"],
)
def test_rows_stay_together_where_the_target_needs_them_to(fake_target, refusal):
    lir, _, _ = joined(fake_target(**refusal), 1, 0, 1)

    assert "rlx.concat" in [s.node.op.name for s in lir.steps]


@pytest.mark.parametrize("accepts_strides", [True, False])
def test_another_reader_of_a_part_has_to_read_it_with_gaps(fake_target, accepts_strides):
    target = fake_target(writes_strides=True, accepts_strides=accepts_strides)
    lir, made, y = joined(target, 1, 0, 1, extra=lambda made, x: negative(made[0]))

    assert ("rlx.concat" in [s.node.op.name for s in lir.steps]) is not accepts_strides
    assert (lir.root_of(made[0]) is lir.root_of(y)) is accepts_strides


def test_a_concatenation_of_concatenations_has_one_root(fake_target):
    builder = Builder()
    x = builder.input("x", X)
    a, b, c = (add(x, float(i)) for i in range(3))
    inner = concat([a, b], axis=0)
    outer = concat([c, inner], axis=0)
    lir = make_lir(builder.finish([outer]), fake_target())

    assert {v: lir.aliases[v].byte_offset for v in (a, b, c, inner)} == {c: 0, inner: 256, a: 256, b: 512}
    assert all(lir.aliases[v].root is outer for v in (a, b, c, inner))


# ------------------------------------------------------------------------------------------- padding


IMAGE = spec("f32[2, 3, 4, 16]")


def padded(target, make=lambda h, y: negative(y), *, lo=(0, 1, 1, 0), hi=(0, 1, 2, 0)) -> tuple[Lir, Value, Value]:
    """The padding of an intermediate h, and of both what `make` returns: the plan, h and the padding."""
    builder = Builder()
    h = add(builder.input("x", IMAGE), 1.0)
    y = pad(h, lo=lo, hi=hi)
    return make_lir(builder.finish([make(h, y)]), target), h, y


def test_what_is_padded_is_computed_inside_and_a_step_writes_what_is_around_it(fake_target, execute):
    target = fake_target(writes_strides=True)
    lir, h, y = padded(target)

    assert lir.root_of(h) is lir.root_of(y)
    assert (lir.aliases[h].byte_offset, lir.aliases[h].strides) == ((7 + 1) * 64, (5 * 7 * 64, 7 * 64, 64, 4))
    assert [s.node.op.name for s in lir.steps] == ["rlx.add", "rlx.pad", "rlx.neg"]
    assert verify_lir(lir) == []
    x = np.arange(2 * 3 * 4 * 16, dtype=np.float32).reshape(2, 3, 4, 16)
    wanted = -np.pad(x + 1, ((0, 0), (1, 1), (1, 2), (0, 0)))
    np.testing.assert_array_equal(execute(lir, target, {"x": x})[0], wanted)


def test_padding_with_no_width_is_what_is_padded_whatever_it_would_be_padded_with(fake_target, execute):
    target = fake_target(writes_strides=True)
    builder = Builder()
    h = add(builder.input("x", X), 1.0)
    y = pad(h, add(builder.input("value", spec("f32[]")), 1.0), lo=(0, 0), hi=(0, 0))
    lir = make_lir(builder.finish([negative(y)]), target)

    assert "rlx.pad" not in [s.node.op.name for s in lir.steps]
    assert verify_lir(lir) == []
    x = np.ones(X.static_shape, np.float32)
    np.testing.assert_array_equal(execute(lir, target, {"x": x, "value": np.float32(3)})[0], -x - 1)


def test_a_part_that_lies_elsewhere_is_found(fake_target):
    lir, h, _ = padded(fake_target(writes_strides=True))

    for wrong in ({"byte_offset": 0}, {"strides": (4 * 7 * 64, 7 * 64, 64, 4)}):
        moved = evolve(lir, aliases={**lir.aliases, h: evolve(lir.aliases[h], **wrong)})
        assert "lies at" in verify_lir(moved)[0].message


def flat(h, y):
    return add(sum_axes(y, axes=(0, 1, 2, 3)), sum_axes(reshape(h, (24, 16)), axes=(0, 1)))


def turned(h, y):
    return add(sum_axes(y, axes=(0, 1, 2, 3)), sum_axes(transpose(h, (0, 3, 1, 2)), axes=(0, 1, 2, 3)))


@pytest.mark.parametrize(
    ("make", "more", "is_inside"),
    [
        (turned, {}, True),
        (flat, {}, False),
        (lambda h, y: negative(y), {"lo": (0, 1, -1, 0)}, False),
        (lambda h, y: negative(y), {"lo": (0, 0, 1, 1)}, False),
        (lambda h, y: add(sum_axes(negative(y), axes=(0, 1, 2, 3)), h), {}, True),
    ],
    ids=["a view with gaps", "a view that would be a copy", "a crop", "a part inside a line", "another reader"],
)
def test_what_is_padded_stays_apart_where_that_costs_nothing_more(fake_target, make, more, is_inside):
    lir, h, y = padded(fake_target(writes_strides=True), make, **more)

    assert (lir.root_of(h) is lir.root_of(y)) is is_inside
    assert verify_lir(lir) == []


def test_a_kernel_that_writes_all_of_a_padding_gets_what_is_padded_apart(fake_target):
    lir, h, y = padded(fake_target())

    assert lir.root_of(h) is not lir.root_of(y)
    assert [s.node.op.name for s in lir.steps] == ["rlx.add", "rlx.pad", "rlx.neg"]


# ------------------------------------------------------------------------------------------- in place


def in_place_of_last(target, make) -> bool:
    """Whether the step of the value that `make(x, h)` returns takes over an operand's bytes."""
    builder = Builder()
    x = builder.input("x", spec("f32[4, 4]"))
    h = add(x, 1.0)
    y = make(x, h)
    graph = builder.finish([negative(reshape(y, (1, -1))), *([h] if make is KEPT else [])])
    lir = make_lir(graph, target)
    return bool(next(s for s in lir.steps if s.node is y.node).in_place)


def KEPT(x, h):
    return negative(h)


TAKEN = {
    "an operand that dies": lambda x, h: negative(h),
    "the second operand": lambda x, h: subtract(x, h),
    "one operand read twice alike": lambda x, h: add(h, h),
}
REFUSED = {
    "an operand that is an output": KEPT,
    "an input": lambda x, h: negative(x),
    "an operand read again through a transpose": lambda x, h: subtract(h, transpose(h, (1, 0))),
    "an operand that is only part of a root": lambda x, h: negative(narrow(h, axis=0, start=0, length=2)),
    "a kernel that does not allow it": lambda x, h: concat([h, x], axis=0),
}


@pytest.mark.parametrize("make", TAKEN.values(), ids=TAKEN)
def test_a_result_takes_over(fake_target, make):
    assert in_place_of_last(fake_target(), make)


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_a_result_does_not_take_over(fake_target, make):
    assert not in_place_of_last(fake_target(), make)


def test_a_value_with_a_living_view_is_not_overwritten(fake_target):
    builder = Builder()
    h = add(builder.input("x", X), 1.0)
    view = reshape(h, (64,))
    y = negative(h)
    lir = make_lir(builder.finish([add(reshape(y, (64,)), view)]), fake_target())

    assert not lir.steps[1].in_place
