"""Types: their notation, and the broadcasting rules of SPEC 2.7."""

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import AxisError, RlxError, ShapeError
from rlx_core.ir.dims import DimBinding, collecting_guards, symbol
from rlx_core.ir.types import TensorType, broadcast_shapes, normalize_axes, normalize_axis, spec

N, M = symbol("n"), symbol("m")


@pytest.mark.parametrize("text", ["f32[]", "bf16[4, SEQ, 384]", "i64[2*n + 1]", "c128[0, 3]", "bool[(n)/(4)]"])
def test_a_type_prints_as_it_is_written(text):
    assert str(spec(text)) == text


@pytest.mark.parametrize("text", ["f32", "f31[2]", "f32[2", "f32[-1]", "f32[a b]", "[2]", "f32[2,]", ""])
def test_what_is_no_type_is_refused(text):
    with pytest.raises(RlxError):
        spec(text)


def test_spaces_around_dims_do_not_matter():
    assert spec(" f32 [ n , 2 ] ") == spec("f32[n, 2]")


def test_a_scalar_is_not_one_element():
    assert spec("f32[]") != spec("f32[1]")
    assert spec("f32[]").size == spec("f32[1]").size == 1


def test_sizes_and_bytes_are_numbers_or_expressions():
    assert spec("f16[3, 4]").nbytes == 24
    assert spec("c64[n, 2]").nbytes == 16 * N
    assert spec("f32[0, n]").nbytes == 0
    with pytest.raises(ShapeError, match="more than an address can hold"):
        TensorType(spec("f64[]").dtype, (2**40, 2**40)).nbytes


def test_binding_replaces_known_symbols_only():
    assert spec("f32[n, m]").bind(DimBinding.of(n=2)) == spec("f32[2, m]")


BROADCASTS = [
    (((3, 1), (1, 4)), (3, 4), []),
    (((2, 3), (3,)), (2, 3), []),
    (((), (5,)), (5,), []),
    (((0,), (1,)), (0,), []),
    (((N,), (1,)), (N,), []),
    (((N, 2), (N, 2)), (N, 2), []),
    (((N,), (4,)), (4,), ["n == 4"]),
    (((N,), (M,)), (N,), ["n == m"]),
    (((2, 1), (3,), (1, 1, 1)), (1, 2, 3), []),
]


@pytest.mark.parametrize(("shapes", "expected", "guards"), BROADCASTS, ids=str)
def test_broadcasting(shapes, expected, guards):
    with collecting_guards() as found:
        assert broadcast_shapes(*shapes) == expected
    assert [str(g) for g in found] == guards


def test_static_broadcasting_is_numpys():
    rng = np.random.default_rng(0)
    for _ in range(300):
        shapes = [tuple(int(d) for d in rng.integers(0, 4, rng.integers(0, 4))) for _ in range(3)]
        try:
            expected = np.broadcast_shapes(*shapes)
        except ValueError:
            with pytest.raises(ShapeError, match="do not broadcast"):
                broadcast_shapes(*shapes)
        else:
            assert broadcast_shapes(*shapes) == expected


def test_axes_are_counted_from_the_front_and_named_once():
    assert [normalize_axis(a, 3) for a in (-3, -1, 0, 2)] == [0, 2, 0, 2]
    assert normalize_axes((-1, 0), 3) == (0, 2)
    with pytest.raises(AxisError, match=r"axis 3 is outside a tensor with 3 axes \(-3\.\.2\)"):
        normalize_axis(3, 3)
    with pytest.raises(AxisError, match="twice"):
        normalize_axes((0, -3), 3)


def test_an_array_has_no_more_axes_than_numpy_allows() -> None:
    x = np.float32(1)
    for function in (lambda x: rlx.reshape(x, (1,) * 65), rlx.jit(lambda x: rlx.reshape(x, (1,) * 10_001))):
        with pytest.raises(ShapeError, match="at most 64 axes, not"):
            function(x)
    assert rlx.reshape(x, (1,) * 64).ndim == 64
