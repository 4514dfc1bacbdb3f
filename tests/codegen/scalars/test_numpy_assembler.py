"""Scalar code run by NumPy means what the ops mean: no compiler takes part, so a fault is in the code itself."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import special

from rlx_core.codegen.scalars import conversion as conversion_code
from rlx_core.codegen.scalars.long import LONG
from rlx_core.codegen.scalars.numpy_assembler import NumpyAssembler, evaluated, fused, register
from rlx_core.codegen.scalars.standard import IDIOMS, ROWS, SINGLE, WITHOUT_DOUBLES, standard_table
from rlx_core.codegen.scalars.table import DTYPES
from rlx_core.ir.dtypes import DType, bf16, dtype, f16, f32, f64
from rlx_core.ir.op import Op
from rlx_core.ops import activation, arithmetic, conversion, gamma, trigonometry
from rlx_core.testing.cases import OpProgram, programs


def is_taken(program: OpProgram) -> bool:
    """Whether there is code for a program's op on its operands as they are given, none of them promoted before."""
    types = [v.type for v in program.node.present()]
    return types == list(program.sample.types) and TABLE.refusal(program.node.op, [t.dtype for t in types]) is None


TABLE = standard_table("NumPy")
OPS = tuple(dict.fromkeys((*ROWS, *LONG)))
PROGRAMS = [p for p in programs(OPS) if p.is_static and is_taken(p)]
HAS_LONG_DOUBLES = np.finfo(np.longdouble).nmant > 60
needs_long_doubles = pytest.mark.skipif(
    not HAS_LONG_DOUBLES,
    reason="NumPy's long double is no wider than f64 here (Windows, macOS on ARM); a product in software would do without it",
)
TINY = [0.0, -0.0, 1e-45, -1e-45, 1e-40, 1.1754944e-38]
NUMBERS = [*TINY, np.inf, -np.inf, np.nan, 3.4028235e38, -3.4028235e38, 1.0, -1.0, 0.5, 2.0, 1e6, -1e6]


def ulps(found: np.ndarray, exact: np.ndarray, least: float = 0.0) -> np.ndarray:
    """The distance from the exact number in units of the last place, of `least` at least; infinite where one alone is NaN."""
    with np.errstate(all="ignore"):
        nearest = exact.astype(found.dtype)
        unit = np.spacing(
            np.maximum(np.abs(np.where(np.isfinite(nearest), nearest, 1)), nearest.dtype.type(least))
        ).astype(exact.dtype)
        off = np.where(nearest == found, 0, np.abs(found.astype(exact.dtype) - exact) / unit)
    return np.where(np.isnan(found) != np.isnan(exact), np.inf, np.where(np.isnan(exact), 0, off))


def meaning(op: Op, *operands: np.ndarray) -> np.ndarray:
    """What an op means, in f64."""
    assert op.reference is not None, "a primitive"
    with np.errstate(all="ignore"):
        return np.asarray(op.reference(*(x.astype("f8") if x.dtype.kind == "f" else x for x in operands)))


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_the_code_of_an_op_computes_what_the_op_means(program: OpProgram) -> None:
    op, arrays = program.node.op, [np.ascontiguousarray(x) for x in np.broadcast_arrays(*program.draw())]
    dtypes, to = [dtype(x.dtype) for x in arrays], program.node.types[0].dtype
    if f64 in dtypes and not HAS_LONG_DOUBLES:
        pytest.skip("a fused product of f64 takes long doubles")
    found = evaluated(TABLE, op, arrays)
    exact = meaning(op, *(x.astype(d.accumulator.numpy) for x, d in zip(arrays, dtypes, strict=True)))
    if not to.is_float:
        np.testing.assert_array_equal(found, register(conversion.cast_array(exact, to)))
    elif to.is_narrow:
        # As memory holds both: f32 is so near that it is rounded to the same number or its neighbour.
        assert ulps(found.astype(to.numpy), exact).max(initial=0) <= 1.01
    else:
        # References have errors of their own; those of the gamma family cancel beside zeros, where an ulp is of a term's size.
        least = 1.0 if type(op) in (gamma.lgamma.op, gamma.digamma.op) else 0.0
        assert ulps(found, exact, least).max(initial=0) <= 8


def singles(name: str) -> np.ndarray:
    rng = np.random.default_rng(len(name))
    drawn = [rng.uniform(low, high, 4000).astype("f4") for low, high in ((-104, 89), (-10, 10), (-1, 1), (0.5, 2))]
    anything = rng.integers(0, 1 << 32, 4000, dtype=np.uint32).view("f4")
    return np.concatenate([np.array(NUMBERS, "f4"), *drawn, anything])


BINARY = (arithmetic.atan2.op, arithmetic.hypot.op, arithmetic.logaddexp.op, arithmetic.pow.op)
GAMMA = (gamma.lgamma.op, gamma.digamma.op)


class NoDoubles(NumpyAssembler):
    """What a language without f64 is."""

    def converted(self, x: np.ndarray, source: DType, to: DType) -> np.ndarray:
        assert f64 not in (source, to), "there are no registers of f64"
        return super().converted(x, source, to)


class NoFusion(NoDoubles):
    """What WGSL may be: a fused product is a product and a sum."""

    fuses = False

    def fma(self, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        return x * y + z


@pytest.mark.parametrize("assembler", [NoDoubles, NoFusion])
@pytest.mark.parametrize(
    "op", [op for op, _ in (*SINGLE, *WITHOUT_DOUBLES) if op not in (*IDIOMS, *GAMMA)], ids=lambda op: op.name
)
def test_a_function_of_f32_alone_is_within_two_ulp_and_two_are_within_three_without_f64(
    op: type[Op], assembler: type[NoDoubles]
) -> None:
    x, table = singles(op.name), standard_table("f32", (f32,))
    with np.errstate(all="ignore"):
        # Of two operands: any two, and two of one size.
        pairs = [
            np.concatenate(each) for each in ((x, x), (np.random.default_rng(1).permutation(x), x * np.float32(1.37)))
        ]
        args = pairs if op in BINARY else [x]
        found = table.apply(assembler(), op(), (f32,) * len(args), args)
        off = ulps(found, meaning(op(), *args), 1.0 if op is arithmetic.logaddexp.op else 0.0)
    most = 3 if op in (trigonometry.tan.op, arithmetic.atan2.op) else 2
    assert off.max() <= most, f"{op.name}({[a[off.argmax()] for a in args]}) is {found[off.argmax()]!r}"


@pytest.mark.parametrize("assembler", [NoDoubles, NoFusion])
def test_powers_of_f32_alone_are_within_two_ulp_however_large_the_exponent_is(assembler: type[NoDoubles]) -> None:
    rng = np.random.default_rng(3)
    bases = [np.exp(rng.uniform(-20, 20, 4000)), rng.uniform(0.5, 2, 4000), rng.uniform(0.99, 1.01, 4000)]
    x = np.concatenate([*bases, np.repeat(NUMBERS, len(NUMBERS)), -np.arange(1, 40)]).astype("f4")
    exponents = [rng.uniform(-reach, reach, 4000) for reach in (5, 130, 9000)]
    y = np.concatenate([*exponents, np.tile(NUMBERS, len(NUMBERS)), np.arange(-19, 20)]).astype("f4")
    with np.errstate(all="ignore"):
        found = standard_table("f32", (f32,)).apply(assembler(), arithmetic.pow.op(), (f32, f32), [x, y])
        off = ulps(found, np.power(x.astype("f8"), y.astype("f8")))
    assert off.max() <= 2, f"{x[off.argmax()]} ** {y[off.argmax()]} is {found[off.argmax()]!r}"


@pytest.mark.parametrize("assembler", [NoDoubles, NoFusion])
@pytest.mark.parametrize(
    "op",
    [*(op() for op in GAMMA), *(gamma.Polygamma(order=n) for n in (1, 2, 5, 13))],
    ids=lambda op: f"{op.name}{getattr(op, 'order', '')}",
)
def test_the_gamma_family_of_f32_alone_is_within_one_ulp_more_than_that_of_f64(
    op: Op, assembler: type[NoDoubles]
) -> None:
    """On the left a term, the function on the right, is as large as 1 where they cancel."""
    rng = np.random.default_rng(4)
    drawn = [np.exp(rng.uniform(-80, 80, 2000)), rng.uniform(0, 5, 2000), rng.uniform(0.99, 2.01, 2000)]
    right = np.concatenate([NUMBERS, *drawn, rng.uniform(1.46, 1.463, 200), [1.4616321]]).astype("f4")
    left = -np.concatenate([np.exp(rng.uniform(-80, 5, 1000)), rng.uniform(0, 20, 2000), np.arange(99)]).astype("f4")
    most = 4 + getattr(op, "order", 0) / 2
    for x, least in ((right, 0.0), (left, 8.0)):
        with np.errstate(all="ignore"):
            found = standard_table("f32", (f32,)).apply(assembler(), op, (f32,), [x])
            off = ulps(found, meaning(op, x), least)
        assert off.max() <= most, f"{op}({x[off.argmax()]}) is {found[off.argmax()]!r}"


@pytest.mark.parametrize("op", LONG, ids=lambda op: op.name)
def test_every_long_function_is_computed_in_some_float(op: type[Op]) -> None:
    assert TABLE.form(op, f64) is f64
    assert TABLE.form(op, f16) in (f32, f64)


def test_gelu_is_right_far_into_its_left_tail() -> None:
    x = np.concatenate([np.linspace(-13, 15, 20_001), [0.0, 30.0]]).astype("f4")
    wide = x.astype("f8")
    with np.errstate(all="ignore"):
        found = TABLE.call(NumpyAssembler(), activation.gelu.op, f32, (x,))
    assert ulps(found, wide * 0.5 * special.erfc(-wide * np.sqrt(0.5))).max() <= 3.13


def test_what_a_target_lacks_is_refused_in_words() -> None:
    single = standard_table("WGSL", tuple(d for d in DTYPES if d.itemsize <= 4 and d is not f16))
    assert single.refusal(activation.exp.op(), [f32]) is None
    assert single.refusal(activation.exp.op(), [f64]) == "WGSL code for exp on f64"
    assert single.refusal(gamma.lgamma.op(), [f64]) == "WGSL code for lgamma on f64"
    assert single.refusal(gamma.Polygamma(order=14), [f32]) == "an order of polygamma up to 13"
    assert single.refusal(conversion.Cast(to=f64), [f32]) == "a cast to what registers hold, not f64"
    assert TABLE.refusal(gamma.Polygamma(order=21), [f32]) == "an order of polygamma up to 20"
    assert TABLE.refusal(arithmetic.pow.op(), [f32, f32]) is None


@pytest.mark.parametrize(("kind", "wide"), [("f4", "f8"), pytest.param("f8", np.longdouble, marks=needs_long_doubles)])
def test_a_fused_product_is_rounded_once(kind: str, wide: Any) -> None:
    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal(600) * 2.0 ** rng.integers(-60, 60, 600) for _ in range(2))
    x, y = x.astype(kind), y.astype(kind)
    # Sums that cancel, sums of far sizes, and results between two numbers that a second rounding would take wrong.
    z = np.concatenate([-(x * y)[:200], (x * y)[200:400] * 2.0**-30, rng.standard_normal(200)]).astype(kind)
    with np.errstate(all="ignore"):
        found = fused(x, y, z, wide)
    for a, b, c, d in zip(x, y, z, found, strict=True):
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        neighbours = [Fraction(float(np.nextafter(d, np.array(to, kind)))) for to in (-np.inf, np.inf)]
        assert all(abs(exact - Fraction(float(d))) <= abs(exact - n) for n in neighbours), (a, b, c)


@pytest.mark.parametrize("kind", [f16, bf16], ids=str)
def test_every_narrow_float_is_widened_exactly_and_comes_back(kind: DType) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.int16)
    meant = bits.view(kind.numpy)
    with np.errstate(all="ignore"):
        wide = conversion_code.widened(NumpyAssembler(), kind, bits)
        back = conversion_code.narrowed(NumpyAssembler(), kind, wide)
    np.testing.assert_array_equal(wide, meant.astype("f4"))
    assert (np.isnan(wide) | (back == bits)).all()
    assert np.isnan(back.view(kind.numpy).astype("f4")[np.isnan(wide)]).all()


@pytest.mark.parametrize("kind", [f16, bf16], ids=str)
def test_an_f32_becomes_the_nearest_narrow_float(kind: DType) -> None:
    x = singles(kind.name)
    with np.errstate(all="ignore"):
        found = conversion_code.narrowed(NumpyAssembler(), kind, x).view(kind.numpy)
        np.testing.assert_array_equal(found.astype("f4"), x.astype(kind.numpy).astype("f4"))
