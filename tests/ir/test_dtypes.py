"""Promotion: the table of SPEC 2.2 for every pair, both ways, and independent of order."""

import itertools
import random

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import DtypeError, PromotionError
from rlx_core.ir.dtypes import (
    ALL,
    COMPLEXES,
    FLOATS,
    INTEGERS,
    bool_,
    c64,
    c128,
    dtype,
    f16,
    f32,
    f64,
    promote,
    weak_dtype,
)

SIGNED = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


def by_table(a, b):
    """SPEC 2.2 read row by row; `None` where it says PromotionError."""
    if a is b or b is bool_:
        return a
    if a is bool_:
        return b
    if a.is_integer and b.is_integer:
        if a.kind == b.kind:
            return a if a.itemsize >= b.itemsize else b
        unsigned, signed = (a, b) if a.kind == "uint" else (b, a)
        nbytes = max(2 * unsigned.itemsize, signed.itemsize)
        return dtype(SIGNED[nbytes]) if nbytes <= 8 else None
    if a.is_float and b.is_float:
        return f32 if {a.name, b.name} == {"f16", "bf16"} else (a if a.itemsize >= b.itemsize else b)
    if a.is_complex or b.is_complex:
        if a.is_complex and b.is_complex:
            return a if a.itemsize >= b.itemsize else b
        cplx, real = (a, b) if a.is_complex else (b, a)
        return c128 if by_table(f64 if cplx is c128 else f32, real) is f64 else c64
    floating, integer = (a, b) if a.is_float else (b, a)
    return f64 if floating is f64 or integer.itemsize == 8 else f32


@pytest.mark.parametrize(("a", "b"), list(itertools.product(ALL, ALL)), ids=str)
def test_every_pair_promotes_as_the_table_says_both_ways(a, b):
    expected = by_table(a, b)
    if expected is None:
        for pair in ((a, b), (b, a)):
            with pytest.raises(PromotionError, match="u64 and"):
                promote(*pair)
    else:
        assert promote(a, b) is promote(b, a) is expected


def result_of(dtypes):
    try:
        return promote(*dtypes)
    except PromotionError:
        return PromotionError


def test_the_order_of_many_operands_never_matters():
    draw = random.Random(0)
    for _ in range(500):
        chosen = [draw.choice(ALL) for _ in range(draw.randrange(3, 6))]
        shuffled = draw.sample(chosen, len(chosen))
        assert result_of(chosen) is result_of(shuffled), chosen


def test_every_dtype_has_names_sizes_and_a_numpy_twin():
    for d in ALL:
        assert dtype(d.name) is d is dtype(d.numpy)
        assert d.numpy.itemsize == d.itemsize
    assert dtype(np.dtype(">f4")) is f32


WEAK = [
    (True, [], "bool"),
    (1, [], "i64"),
    (1.0, [], "f32"),
    (1j, [], "c64"),
    (1, ["f16"], "f16"),
    (1.5, ["bf16"], "bf16"),
    (True, ["u8"], "u8"),
    (1.5, ["i64"], "f64"),
    (2, ["bool"], "i64"),
    (1j, ["f64"], "c128"),
    (127, ["i8"], "i8"),
    (-1, ["c64"], "c64"),
]


@pytest.mark.parametrize(("scalar", "others", "expected"), WEAK)
def test_python_scalars_are_weak(scalar, others, expected):
    assert weak_dtype(scalar, [dtype(d) for d in others]).name == expected


def test_weak_scalars_of_a_higher_kind_then_promote():
    assert promote(dtype("i64"), weak_dtype(1.5, [dtype("i64")])) is f64
    assert promote(f64, weak_dtype(1j, [f64])) is c128


def test_a_weak_float_next_to_an_i64_keeps_its_digits():
    x = np.int64([3])
    assert rlx.jit(lambda x: 0.1 * x)(x) == (rlx.asarray(x) * 0.1) == 0.1 * x


@pytest.mark.parametrize(("scalar", "of"), [(300, "i8"), (-1, "u8"), (-129, "i8"), (2**64, "u64")])
def test_a_literal_that_does_not_fit_is_an_error_with_the_range(scalar, of):
    with pytest.raises(DtypeError, match=rf"{scalar} does not fit {of}"):
        weak_dtype(scalar, [dtype(of)])


def test_kinds_partition_the_dtypes():
    assert {bool_, *INTEGERS, *FLOATS, *COMPLEXES} == set(ALL)
    assert not bool_.is_integer
    assert not c64.is_float
    assert f16.accumulator is f32
    assert f64.accumulator is f64


@pytest.mark.parametrize("spelling", ["float128", "f31", object, "S3", "complex256"], ids=str)
def test_an_unknown_dtype_is_refused(spelling):
    with pytest.raises(DtypeError, match="not an element type"):
        dtype(spelling)
