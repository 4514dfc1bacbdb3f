"""Arrays in memory: the operators and methods of a program's values, read-only for other libraries, and accepted by them."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import IndexRangeError, PromotionError, RlxError, TraceError
from rlx_core.ir.array import HostArray
from rlx_core.ir.graph import ArrayMethods, Value

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7 - 1
N = np.arange(24, dtype=np.int32).reshape(2, 3, 4)

SAME: dict[str, Callable[[Any], Any]] = {
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "transpose": lambda x: x.transpose(1, 0, 2),
    "reshape": lambda x: x.reshape(6, -1),
    "flatten": lambda x: x.flatten(),
    "astype": lambda x: x.astype("f16"),
    "halves": lambda x: x / 2,
    "times a float": lambda x: x * 2.5,
    "plus an integer": lambda x: 3 + x,
    "power": lambda x: x**2,
    "floor": lambda x: x // 2,
    "remainder": lambda x: x % 3,
    "compared": lambda x: (x > 1) & (x != 2),
    "negative": lambda x: -x,
    "absolute": abs,
    "mean": lambda x: x.mean(),
    "sum": lambda x: x.sum(axis=(0, 2), keepdims=True),
    "max": lambda x: x.max(axis=1),
    "argmax": lambda x: x.argmax(axis=-1),
    "std": lambda x: x.std(),
    "cumsum": lambda x: x.cumsum(axis=1),
    "take": lambda x: x.take(np.array([1, 0]), axis=2),
    "clip": lambda x: x.clip(0, 3),
    "round": lambda x: x.round(),
    "repeat": lambda x: x.repeat(2, axis=0),
    "squeeze": lambda x: x[:1].squeeze(0),
    "swapaxes": lambda x: x.swapaxes(0, 2),
    "real": lambda x: x.real,
    "index": lambda x: x[1, ::-1, None, 1:3],
    "gather": lambda x: x[np.array([0, 1]), :, np.array([2, 3])],
    "mask": lambda x: x[N > 4],
    "at": lambda x: x.at[0, 1].add(5),
    "product": lambda x: x[0] @ x[1].T,
    "NumPy beside it": lambda x: np.float64(2) * X.astype(np.float64) + x,
}


@pytest.mark.parametrize("given", [X, N], ids=["f32", "i32"])
@pytest.mark.parametrize("name", SAME)
def test_an_expression_means_the_same_inside_and_outside_of_a_program(name: str, given: np.ndarray) -> None:
    f = SAME[name]
    outside, inside = f(rlx.asarray(given)), rlx.jit(f)(given)
    assert type(outside) is type(inside) is HostArray
    assert (outside.dtype, outside.shape) == (inside.dtype, inside.shape)
    np.testing.assert_allclose(
        np.asarray(outside, np.float64), np.asarray(inside, np.float64), rtol=1e-6 if outside.dtype.itemsize > 2 else 0
    )


def test_both_kinds_of_arrays_have_every_method() -> None:
    public = {name for name in vars(ArrayMethods) if not name.startswith("_")}
    for kind in (Value, HostArray):
        assert all(hasattr(kind, name) for name in (*public, "block_until_ready", "dtype", "shape", "item", "tolist"))


@pytest.mark.parametrize("dtype", ["f4", "i8", "?", "c8", ml_dtypes.bfloat16], ids=str)
def test_numpy_sees_the_elements_without_a_copy_and_cannot_write(dtype: Any) -> None:
    x = rlx.asarray(np.array([1, 0, 1], dtype), copy=True)
    seen = np.asarray(x)
    assert np.shares_memory(seen, np.asarray(x))
    with pytest.raises(ValueError, match="read-only"):
        seen[0] = 0
    assert np.array(x).flags.writeable
    assert np.asarray(x, np.complex128).dtype == np.complex128
    with pytest.raises(ValueError, match="copy"):
        x.__array__(np.dtype("u2"), copy=False)
    assert type(np.exp(x[:2])) is np.ndarray


def test_functions_of_numpy_give_arrays_of_numpy() -> None:
    x = rlx.asarray(X)
    for found in (
        np.sum(x),
        np.mean(x, axis=0),
        np.concatenate([x, X]),
        np.where(x > 0, x, 0),
        np.sin(x),
        np.add.reduce(x),
    ):
        assert isinstance(found, np.ndarray | np.generic)
    out = np.zeros_like(X)
    np.multiply(x, 2, out=out)
    np.testing.assert_array_equal(out, X * 2)
    mine = X.copy()
    mine += x
    np.testing.assert_array_equal(mine, X + X)
    with pytest.raises(TypeError):
        np.multiply(X, 2, out=x)
    np.testing.assert_allclose(x, X)
    assert X[0, 0, 0] == pytest.approx(x[0, 0, 0])
    assert x[0, 0, 0] == pytest.approx(float(X[0, 0, 0]))


def test_operators_beside_arrays_of_numpy_promote_as_rlx_does() -> None:
    x = rlx.asarray(np.ones(3, np.float32))
    for found in (np.ones(3, np.int32) * x, x * np.ones(3, np.int32), np.int32(2) + x, np.float32(2) - x):
        assert type(found) is HostArray
        assert found.dtype == rlx.f32
    with pytest.raises(PromotionError):
        rlx.asarray(np.ones(3, np.uint64)) + np.ones(3, np.int64)


def test_dlpack_and_buffers_share_the_memory() -> None:
    x = rlx.asarray(X, copy=True)
    assert np.shares_memory(np.from_dlpack(x), np.asarray(x))
    assert x.__dlpack_device__()[0] == 1
    assert bytes(x.__buffer__(0)) == X.tobytes() == x.tobytes()


def test_assignment_gives_the_object_other_elements() -> None:
    x = rlx.asarray(X, copy=True)
    y, seen, row = x, np.asarray(x), x[0]
    x[0] = 5
    x[1, x[1] < 0] = 7
    x += 1
    assert (np.asarray(y)[0] == 5).all()
    np.testing.assert_array_equal(seen, X)
    np.testing.assert_array_equal(row, X[0])
    assert (np.asarray(x)[0] == 6).all()
    with pytest.raises(IndexRangeError):
        x[2]
    with pytest.raises(IndexRangeError):
        x[9] = 1

    def assigns(v: Any) -> Any:
        made = rlx.asarray(1.0) if v is None else y
        made[0] = v
        return made

    with pytest.raises(RlxError):
        rlx.trace(assigns, rlx.spec("f32[]"))


def test_numbers_of_python_come_out() -> None:
    x = rlx.asarray(np.float32(2.5))
    assert (float(x), int(x), complex(x), bool(x), round(x), f"{x:.2f}", x.item()) == (
        2.5,
        2,
        2.5,
        True,
        2,
        "2.50",
        2.5,
    )
    assert math.sin(x) == math.sin(2.5)
    assert [7, 8, 9][rlx.asarray(1)] == 9 - 1
    assert rlx.asarray(X).tolist() == X.tolist()
    assert (X[0, 0, 0] in rlx.asarray(X), len(rlx.asarray(X)), [float(v) for v in rlx.asarray(X)[0, 0]]) == (
        True,
        2,
        X[0, 0].tolist(),
    )
    for refused in (len, list, iter):
        with pytest.raises(TypeError):
            refused(x)
    with pytest.raises(TypeError):
        hash(x)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(rlx.asarray(X))


def test_it_prints_copies_and_travels() -> None:
    x = rlx.asarray(np.float32([1, 2]))
    assert repr(x) == "Array([1., 2.], dtype=float32)"
    assert str(x) == "[1. 2.]"
    travelled = pickle.loads(pickle.dumps(x))  # noqa: S301  made in this line
    for same in (copy.copy(x), copy.deepcopy(x), travelled, x.copy(), x.block_until_ready()):
        np.testing.assert_array_equal(same, x)
    assert (x.device, x.itemsize, x.nbytes, x.ndim, x.size, str(x.type)) == ("cpu", 4, 8, 1, 2, "f32[2]")
    assert x.to_device("cpu") is x


def test_an_array_that_is_captured_is_a_constant_of_the_program() -> None:
    table = rlx.asarray(X)
    found = rlx.jit(lambda i: table[i] + table.mean())(np.int32(1))
    np.testing.assert_allclose(found, X[1] + X.mean(), rtol=1e-6)
    with pytest.raises(TraceError):
        rlx.jit(lambda i: np.asarray(i))(np.int32(1))
