"""Every rule of the two algebras is evaluated on both sides, and near misses are left alone."""

import numpy as np
import pytest

from rlx_core.ir.dtypes import ALL, dtype
from rlx_core.ir.graph import Builder
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import maximum, pow
from rlx_core.ops.conversion import cast, cast_array
from rlx_core.ops.movement import concat, narrow
from rlx_core.ops.selection import where
from rlx_core.ops.structural import expand, reshape, transpose
from rlx_core.passes.algebra import algebra, holds_all_values
from rlx_core.passes.engine.apply_rules import apply_rules
from rlx_core.passes.engine.rule_checks import check_rule
from rlx_core.passes.fast_math import fast_math


@pytest.mark.parametrize("rule", list(algebra), ids=lambda r: r.name)
def test_both_sides_are_equal_bit_for_bit(rule):
    assert rule.gives_up is None
    assert check_rule(rule).fired


@pytest.mark.parametrize("rule", list(fast_math), ids=lambda r: r.name)
def test_both_sides_are_equal_on_ordinary_values(rule):
    assert rule.gives_up
    assert check_rule(rule).fired


def after(make, *types):
    b = Builder()
    inputs = [b.input(n, spec(t)) for n, t in zip("xyz", types, strict=False)]
    made = make(*inputs)
    result = apply_rules(b.finish(made if isinstance(made, list) else [made]), algebra)
    return [n.op.name.split(".")[1] for n in result.graph.nodes if not n.is_leaf]


@pytest.mark.parametrize(
    ("make", "types", "left"),
    [
        (lambda x: x + 0, ["f32[3]"], ["add"]),  # -0.0 + 0 is +0.0
        (lambda x: x * 0, ["f32[3]"], ["mul"]),  # NaN stays NaN
        (lambda x: x - x, ["f32[3]"], ["sub"]),
        (lambda x: x - np.float32(-0.0), ["f32[3]"], ["sub"]),  # x - -0.0 is x + 0.0
        (lambda x: x * 1, ["c64[3]"], ["mul"]),  # (inf + 0i)·(1 + 0i) has a NaN
        (lambda x: x * np.ones((2, 3), "f4"), ["f32[3]"], ["mul"]),  # it broadcasts
        (lambda x: pow(x, 1), ["c64[3]"], ["pow"]),
        (lambda x: cast(cast(x, to=dtype("i8")), to=dtype("f32")), ["f32[3]"], ["cast", "cast"]),
        (lambda x: cast(cast(x, to=dtype("f32")), to=dtype("i8")), ["u8[3]"], ["cast", "cast"]),  # saturates, not wraps
        (lambda x: cast(cast(x, to=dtype("f32")), to=dtype("i64")), ["i64[3]"], ["cast", "cast"]),  # 2**24 + 1
        (lambda x: cast(cast(x, to=dtype("bf16")), to=dtype("f32")), ["f16[3]"], ["cast", "cast"]),
        (lambda x: transpose(transpose(x, (1, 2, 0)), (1, 2, 0)), ["f32[2, 3, 4]"], ["transpose"]),
        (lambda x: transpose(exp(transpose(x, (1, 2, 0))), (1, 2, 0)), ["f32[2, 3, 4]"], ["transpose", "exp", "transpose"]),
        (lambda x, y: narrow(concat([x, y]), axis=0, start=2, length=3), ["f32[3]", "f32[4]"], ["concat", "narrow"]),
        (lambda x, y: narrow(narrow(x, axis=0, start=1, length=2), axis=1, start=0, length=1), ["f32[3, 3]", "f32[]"],
         ["narrow", "narrow"]),
        (lambda x, y: where(x, y, 0), ["bool[3]", "f32[3]"], ["where"]),
        (lambda x, y: maximum(x, y), ["f32[3]", "f32[3]"], ["max"]),
        (lambda x: expand(reshape(x, (3, 1)), (3, 3)), ["f32[3]"], ["reshape", "expand"]),
    ],
)  # fmt: skip
def test_near_misses_are_left_alone(make, types, left):
    assert after(make, *types) == left


@pytest.mark.parametrize(
    ("make", "types", "left"),
    [
        (lambda x: x + 0, ["i32[3]"], []),
        (lambda x: (x - x) + x * 0, ["i32[3]"], ["full"]),
        (lambda x: transpose(exp(transpose(x, (1, 2, 0))), (2, 0, 1)), ["f32[2, 3, 4]"], ["exp"]),
        (lambda x, y: narrow(concat([x, y]), axis=0, start=3, length=4), ["f32[3]", "f32[4]"], []),
        (lambda x, y: where(x, y, y), ["bool[3]", "f32[3]"], []),
        (lambda x: where(np.False_, x, 1.0), ["f32[3]"], ["expand"]),
        (lambda x: cast(cast(x, to=dtype("i32")), to=dtype("i64")), ["i8[3]"], ["cast"]),
    ],
)
def test_what_can_go_goes(make, types, left):
    assert after(make, *types) == left


HELD = [(wide, held) for wide in ALL for held in ALL if holds_all_values(wide, held)]


@pytest.mark.parametrize(("wide", "narrow_type"), HELD, ids=str)
def test_a_type_that_holds_all_values_brings_them_back(wide, narrow_type):
    """The claim is checked against the cast itself, on extremes and on values next to them."""
    if narrow_type.is_integer:
        limits = np.iinfo(narrow_type.numpy)
        values = np.array([limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max], narrow_type.numpy)
    elif narrow_type.name == "bool":
        values = np.array([False, True])
    else:
        values = np.array([0.0, 1.0, 1.0009765625, 3.0e-5, -65504.0, np.inf]).astype(narrow_type.numpy)
    there = cast_array(values, wide)
    back = cast_array(there if narrow_type.is_complex else there.real, narrow_type)
    assert back.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("wide", "narrow_type"),
    [
        ("f32", "i32"),
        ("f64", "i64"),
        ("f16", "bf16"),
        ("bf16", "f16"),
        ("u8", "i8"),
        ("i8", "u8"),
        ("f32", "c64"),
        ("i64", "f16"),
    ],
)
def test_types_that_lose_values_are_known(wide, narrow_type):
    assert not holds_all_values(dtype(wide), dtype(narrow_type))


def test_every_type_holds_itself_and_bool_and_wider_ones_of_a_kind_hold_narrower_ones():
    pairs = {(wide.name, held.name) for wide, held in HELD}
    assert {(d.name, d.name) for d in ALL} <= pairs
    assert {("f64", "f32"), ("f32", "bf16"), ("i64", "u32"), ("c128", "f64"), ("f64", "i32"), ("i8", "bool")} <= pairs


def test_the_whole_set_changes_no_bit_of_a_program():
    b = Builder()
    x = b.input("x", spec("f32[2, 3]"))
    y = transpose(transpose(-(-x) * 1 - 0, (1, 0)), (1, 0))
    z = narrow(concat([y, y], axis=0), axis=0, start=2, length=2)
    graph = b.finish([z, y, maximum(z, z)])
    result = apply_rules(graph, algebra)
    data = np.array([[np.nan, -0.0, np.inf], [1e-45, 3.0, -np.inf]], "f4")
    for before, now in zip(interpret(graph, {"x": data}), interpret(result.graph, {"x": data}), strict=True):
        assert before.tobytes() == now.tobytes()
    assert [n.op.name for n in result.graph.nodes] == ["core.input"]
