"""Every rule of loop kernels has a kernel that breaks it, and only it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from rlx_core.codegen import check_kernel
from rlx_core.codegen.loops import Apply, Bound, Buffer, Const, Index, Kernel, Load, Reduce, Scalar, Store
from rlx_core.errors import VerifyError
from rlx_core.ir.dtypes import bool_, f32, f64, i32, i64
from rlx_core.ops.activation import exp, gelu
from rlx_core.ops.arithmetic import add

SOUND = Kernel(
    "k",
    (3, 5),
    1,
    (Buffer("x", f32), Buffer("y", f32, is_result=True)),
    (
        Load(0, f32, (20, 4)),  # %0
        Reduce(f32, "sum", 0),  # %1
        Apply(f32, add.op(), (0, 1)),  # %2
        Index(i64, 0),  # %3
        Bound(i64, 3, 4, is_checked=True),  # %4
        Load(0, f32, (0, 4), 0, ((4, 20),)),  # %5
        Const(f32, 1.0),  # %6
    ),
    (Store(1, 2, (20, 4)),),
)


def with_value(number: int, value: Scalar) -> Callable[[], Kernel]:
    return lambda: evolve(SOUND, values=(*SOUND.values[:number], value, *SOUND.values[number + 1 :]))


def with_store(store: Store) -> Callable[[], Kernel]:
    return lambda: evolve(SOUND, stores=(store,))


def test_a_kernel_that_obeys_is_given_back() -> None:
    assert check_kernel(SOUND) is SOUND


BROKEN: dict[str, tuple[Callable[[], Kernel], str, str]] = {
    "grid of more axes than there are": (lambda: evolve(SOUND, grid=3), "grid", "3 axes of 2"),
    "negative grid": (lambda: evolve(SOUND, grid=-1), "grid", "-1 axes of 2"),
    "negative size": (lambda: evolve(SOUND, extents=(3, -5)), "extents", "a size is at least 0, not -5"),
    "two buffers of one name": (
        lambda: evolve(SOUND, buffers=(Buffer("y", f32), SOUND.buffers[1])), "buffer 1", "another buffer is called y",
    ),
    "operand that comes later": (with_value(1, Reduce(f32, "sum", 2)), "%1", "an operand does not come before it"),
    "operand that is itself": (with_value(2, Apply(f32, exp.op(), (2,))), "%2", "an operand does not come before it"),
    "negative operand": (with_value(2, Apply(f32, exp.op(), (-1,))), "%2", "an operand does not come before it"),
    "load of no buffer": (with_value(0, Load(7, f32, (20, 4))), "%0", "there is no buffer 7"),
    "load of another dtype": (with_value(6, Load(0, f64, (20, 4))), "%6", "loads f64 from a buffer of f32"),
    "load with a stride too few": (with_value(0, Load(0, f32, (20,))), "%0", "has 1 strides, the space has 2 axes"),
    "index that is not bounded": (
        with_value(5, Load(0, f32, (0, 4), 0, ((3, 20),))), "%5", "an index is not held inside its axis",
    ),
    "index of no axis": (with_value(3, Index(i64, 2)), "%3", "axis 2 as i64"),
    "index as i32": (with_value(3, Index(i32, 0)), "%3", "axis 0 as i32"),
    "bound in an empty axis": (with_value(4, Bound(i64, 3, 0, is_checked=True)), "%4", "an index of i64 in an axis of 0"),
    "bound of a float": (with_value(4, Bound(i64, 0, 4, is_checked=True)), "%4", "an index of f32 in an axis of 4"),
    "bound as i32": (with_value(4, Bound(i32, 3, 4, is_checked=True)), "%4", "an index of i64 as i32"),
    "reduction to another dtype": (with_value(1, Reduce(f64, "sum", 0)), "%1", "reduces f32 to f64"),
    "reduction without a row": (
        lambda: evolve(SOUND, grid=2), "%1", "reduces f32 to f32 over 0 row axes",
    ),
    "reduction by a word that is none": (
        with_value(1, Reduce(f32, "mean", 0)), "%1", "combines with mean, not with sum, prod, max or min",  # type: ignore[arg-type]
    ),
    "number of another kind": (with_value(6, Const(f32, True)), "%6", "True is no number of f32"),
    "fraction as an integer": (with_value(6, Const(i64, 1.5)), "%6", "1.5 is no number of i64"),
    "number as a truth": (with_value(6, Const(bool_, 2)), "%6", "2 is no number of bool"),
    "op that is no primitive": (with_value(2, Apply(f32, gelu.op(), (0,))), "%2", "rlx.gelu is not a primitive"),
    "op with an operand too few": (with_value(2, Apply(f32, add.op(), (0,))), "%2", "operands"),
    "op of another dtype": (with_value(2, Apply(f64, add.op(), (0, 1))), "%2", "rlx.add gives f32[], not f64"),
    "store into no buffer": (with_store(Store(4, 2, (20, 4))), "store 0", "there is no buffer 4"),
    "store of no value": (with_store(Store(1, 9, (20, 4))), "store 0", "there is no value 9"),
    "store into an operand": (with_store(Store(0, 2, (20, 4))), "store 0", "x is an operand"),
    "store of another dtype": (with_store(Store(1, 3, (20, 4))), "store 0", "stores i64 into a buffer of f32"),
    "store with a stride too many": (with_store(Store(1, 2, (20, 4, 0))), "store 0", "has 3 strides"),
    "store of many into one": (with_store(Store(1, 2, (20, 0))), "store 0", "stores 5 times at one place, along axis 1"),
    "result that is never stored": (lambda: evolve(SOUND, stores=()), "y", "a result is never stored"),
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_named_with_its_place(rule: str) -> None:
    make, where, what = BROKEN[rule]

    with pytest.raises(VerifyError) as refused:
        check_kernel(make())

    said = {str(fact.label): str(fact.value) for fact in refused.value.facts}
    assert where in said
    assert what in said[where]


def test_every_broken_rule_is_listed() -> None:
    twice = evolve(SOUND, extents=(-3, 5), stores=())
    with pytest.raises(VerifyError, match="kernel k: 2 rules are broken, the first at extents"):
        check_kernel(twice)
