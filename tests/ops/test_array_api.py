"""The user's functions against NumPy, called independently, and what they say when they cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core
from rlx_core import ops as rlx
from rlx_core.errors import AxisError, IndexRangeError, RlxError, ShapeError, TraceError
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import TensorType, spec

X = np.arange(24.0).reshape(2, 3, 4) % 7 - 2
LINE = np.array([3, 1, 2, 3, 0])
SORTED = np.array([0, 1, 1, 4])

AGREEMENTS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "sum": (lambda: rlx.sum(X), lambda: X.sum()),
    "sum of an axis": (lambda: rlx.sum(X, axis=-2, keepdims=True), lambda: X.sum(-2, keepdims=True)),
    "sum in another dtype": (lambda: rlx.sum(LINE, dtype="f64"), lambda: LINE.sum(dtype=np.float64)),
    "sum of bool": (lambda: rlx.sum(X > 0), lambda: (X > 0).sum()),
    "prod": (lambda: rlx.prod(LINE, axis=0), lambda: LINE.prod(axis=0)),
    "mean": (lambda: rlx.mean(X, axis=(0, 2)), lambda: X.mean((0, 2))),
    "mean of i64": (lambda: rlx.mean(LINE), lambda: LINE.mean()),
    "var": (lambda: rlx.var(X, axis=1, correction=1), lambda: X.var(1, ddof=1)),
    "std": (lambda: rlx.std(X, keepdims=True), lambda: X.std(keepdims=True)),
    "max": (lambda: rlx.max(X, axis=0), lambda: X.max(0)),
    "min": (lambda: rlx.min(X), lambda: X.min()),
    "logsumexp": (lambda: rlx.logsumexp(X, axis=2), lambda: np.log(np.exp(X).sum(2))),
    "any": (lambda: rlx.any(X > 3, axis=1), lambda: (X > 3).any(1)),
    "all": (lambda: rlx.all(X, axis=(0, 1)), lambda: X.all((0, 1))),
    "count_nonzero": (lambda: rlx.count_nonzero(X, axis=1), lambda: np.count_nonzero(X, axis=1)),
    "argmax": (lambda: rlx.argmax(X, axis=2, keepdims=True), lambda: X.argmax(2, keepdims=True)),
    "argmax of all": (lambda: rlx.argmax(X, keepdims=True), lambda: X.argmax(keepdims=True)),
    "argmin of all": (lambda: rlx.argmin(X), lambda: X.argmin()),
    "cumulative_sum": (lambda: rlx.cumulative_sum(X, axis=1), lambda: np.cumsum(X, 1)),
    "cumulative_sum from 0": (
        lambda: rlx.cumulative_sum(LINE, include_initial=True),
        lambda: np.concatenate([[0], np.cumsum(LINE)]),
    ),
    "cumulative_prod": (lambda: rlx.cumulative_prod(X, axis=-1), lambda: np.cumprod(X, -1)),
    "sort": (lambda: rlx.sort(X, axis=0), lambda: np.sort(X, 0)),
    "sort descending": (lambda: rlx.sort(LINE, descending=True), lambda: np.sort(LINE)[::-1]),
    "argsort": (lambda: rlx.argsort(LINE), lambda: np.argsort(LINE, kind="stable")),
    "argsort descending": (lambda: rlx.argsort(LINE, descending=True), lambda: np.array([0, 3, 2, 1, 4])),
    "top_k": (lambda: rlx.top_k(LINE, 3)[1], lambda: np.array([0, 3, 2])),
    "searchsorted": (lambda: rlx.searchsorted(SORTED, LINE, "right"), lambda: np.searchsorted(SORTED, LINE, "right")),
    "reshape": (lambda: rlx.reshape(X, (4, -1)), lambda: X.reshape(4, -1)),
    "permute_dims": (lambda: rlx.permute_dims(X, (2, 0, -2)), lambda: X.transpose(2, 0, 1)),
    "matrix_transpose": (lambda: rlx.matrix_transpose(X), lambda: X.swapaxes(1, 2)),
    "moveaxis": (lambda: rlx.moveaxis(X, (0, 1), (-1, 0)), lambda: np.moveaxis(X, (0, 1), (-1, 0))),
    "broadcast_to": (lambda: rlx.broadcast_to(LINE, (2, 5)), lambda: np.broadcast_to(LINE, (2, 5))),
    "broadcast_arrays": (
        lambda: rlx.broadcast_arrays(X, X[0, :1])[1],
        lambda: np.broadcast_to(X[0, :1], X.shape),
    ),
    "expand_dims": (lambda: rlx.expand_dims(X, (0, -1)), lambda: X[None, ..., None]),
    "squeeze": (lambda: rlx.squeeze(X[:1, :, :1], -1), lambda: X[:1, :, 0]),
    "squeeze all": (lambda: rlx.squeeze(X[:1, :, :1]), lambda: X[0, :, 0]),
    "concat": (lambda: rlx.concat([X, X[:, :1]], axis=-2), lambda: np.concatenate([X, X[:, :1]], -2)),
    "concat flat": (lambda: rlx.concat([X, LINE], axis=None), lambda: np.concatenate([X, LINE], None)),
    "stack": (lambda: rlx.stack([X, X + 1], axis=-1), lambda: np.stack([X, X + 1], -1)),
    "unstack": (lambda: rlx.unstack(X, 1)[2], lambda: X[:, 2]),
    "split": (lambda: rlx.split(X, 2, axis=-1)[1], lambda: np.split(X, 2, -1)[1]),
    "split at": (lambda: rlx.split(X, [1, 3], axis=2)[1], lambda: np.split(X, [1, 3], 2)[1]),
    "flip": (lambda: rlx.flip(X), lambda: np.flip(X)),
    "flip an axis": (lambda: rlx.flip(X, axis=-1), lambda: np.flip(X, -1)),
    "roll": (lambda: rlx.roll(X, 5), lambda: np.roll(X, 5)),
    "roll axes": (lambda: rlx.roll(X, (1, -2), (0, 2)), lambda: np.roll(X, (1, -2), (0, 2))),
    "tile": (lambda: rlx.tile(X, (2, 1)), lambda: np.tile(X, (2, 1))),
    "repeat": (lambda: rlx.repeat(X, 2, axis=1), lambda: np.repeat(X, 2, 1)),
    "repeat each": (lambda: rlx.repeat(X, [0, 2, 1], axis=1), lambda: np.repeat(X, [0, 2, 1], 1)),
    "repeat by one number": (lambda: rlx.repeat(X, rlx.asarray([2]), axis=1), lambda: np.repeat(X, [2], 1)),
    "repeat by an array": (lambda: rlx.repeat(X, rlx.asarray([0, 2, 1]), axis=1), lambda: np.repeat(X, [0, 2, 1], 1)),
    "take from the end": (lambda: rlx.take(X, rlx.asarray([-1, 0, -3]), axis=1), lambda: np.take(X, [-1, 0, -3], 1)),
    "take traced": (
        lambda: rlx_core.jit(lambda x, i: rlx.take(x, i, axis=1))(X, np.int8([-1, 0, -3])),
        lambda: np.take(X, [-1, 0, -3], 1),
    ),
    "take by bytes": (
        lambda: rlx_core.jit(lambda x, i: rlx.take(x, i, axis=0))(np.arange(300), np.int8([-1, 5])),
        lambda: np.int64([299, 5]),
    ),
    "nonzero": (lambda: rlx.stack(rlx.nonzero(X > 0)), lambda: np.stack(np.nonzero(X > 0))),
    "mask": (lambda: rlx.asarray(X)[rlx.asarray(X) > 0], lambda: X[X > 0]),
    "mask of no axes": (lambda: rlx.asarray(X)[rlx.any(X > 0)], lambda: X[np.True_]),
    "assignment at a mask of no axes": (
        lambda: rlx_core.jit(lambda x: rlx_core.asarray(x, copy=True).at[rlx.any(x > 0)].set(1.0))(X),
        lambda: np.ones_like(X),
    ),
    "repeat flat": (lambda: rlx.repeat(X, 2), lambda: np.repeat(X, 2)),
    "pad": (lambda: rlx.pad(LINE, (1, 2), constant_values=9), lambda: np.pad(LINE, (1, 2), constant_values=9)),
    "pad symmetric": (lambda: rlx.pad(X, 5, mode="symmetric"), lambda: np.pad(X, 5, mode="symmetric")),
    "var of complex": (lambda: rlx.var(X + 2j * X[::-1], axis=0), lambda: (X + 2j * X[::-1]).var(0)),
    "std of complex": (lambda: rlx.std(X * 1j, axis=2, correction=1), lambda: (X * 1j).std(2, ddof=1)),
    "real of real": (lambda: rlx.real(LINE), lambda: np.real(LINE)),
    "take_along_axis broadcasting": (
        lambda: rlx.take_along_axis(X, LINE[None, None, :3], axis=2),
        lambda: np.take_along_axis(X, np.broadcast_to(LINE[None, None, :3], (2, 3, 3)), axis=2),
    ),
    "pad reflecting": (lambda: rlx.pad(X, 2, mode="reflect"), lambda: np.pad(X, 2, mode="reflect")),
    "pad wrapping": (
        lambda: rlx.pad(X, ((0, 0), (4, 7), (1, 0)), mode="wrap"),
        lambda: np.pad(X, ((0, 0), (4, 7), (1, 0)), mode="wrap"),
    ),
    "pad with edges": (lambda: rlx.pad(LINE, 3, mode="edge"), lambda: np.pad(LINE, 3, mode="edge")),
    "diag of a vector": (lambda: rlx.diag(LINE, -2), lambda: np.diag(LINE, -2)),
    "diag of a matrix": (lambda: rlx.diag(X[0], 1), lambda: np.diag(X[0], 1)),
    "tril": (lambda: rlx.tril(X, -1), lambda: np.tril(X, -1)),
    "triu of bool": (lambda: rlx.triu(X > 0, 1), lambda: np.triu(X > 0, 1)),
    "take": (lambda: rlx.take(X, LINE[:2], axis=-1), lambda: X.take(LINE[:2], -1)),
    "take clipped": (lambda: rlx.take(LINE, np.array([-1, 9]), out_of_bounds="clip"), lambda: LINE[[0, 4]]),
    "take_along_axis": (
        lambda: rlx.take_along_axis(X, X.argsort(1), axis=1),
        lambda: np.take_along_axis(X, X.argsort(1), 1),
    ),
    "arange": (lambda: rlx.arange(7, -2, -3), lambda: np.arange(7, -2, -3)),
    "arange of floats": (lambda: rlx.arange(0, 1, 0.3), lambda: np.arange(0, 1, 0.3, np.float32)),
    "linspace": (lambda: rlx.linspace(-1, 2, 5), lambda: np.linspace(-1, 2, 5, dtype=np.float32)),
    "eye": (lambda: rlx.eye(2, 4, k=1, dtype="i64"), lambda: np.eye(2, 4, 1, np.int64)),
    "full": (lambda: rlx.full((2, 2), 7), lambda: np.full((2, 2), 7)),
    "ones_like": (lambda: rlx.ones_like(X > 0), lambda: np.ones_like(X > 0)),
    "zeros_like": (lambda: rlx.zeros_like(X, dtype="i32"), lambda: np.zeros_like(X, np.int32)),
    "one_hot": (lambda: rlx.one_hot(LINE, depth=4), lambda: np.eye(4, dtype=np.float32)[LINE]),
}


@pytest.mark.parametrize("name", AGREEMENTS)
def test_a_function_agrees_with_numpy(name: str) -> None:
    ours, theirs = (f() for f in AGREEMENTS[name])

    assert (np.asarray(ours).dtype, np.shape(ours)) == (np.asarray(theirs).dtype, np.shape(theirs))
    # Sums of 24 f64 elements in another order; f32 ranges rounded once.
    np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("x", [np.float32([[3, 1], [-0.0, 1], [np.nan, np.nan]]), np.int64(7), np.bool_([]), X[:0]])
def test_sets_agree_with_numpy(x: np.ndarray) -> None:
    for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
        ours, theirs = getattr(rlx, name)(rlx.asarray(x)), getattr(np, name)(x)
        if name == "unique_values":
            ours, theirs = (ours,), (np.unique(x, equal_nan=False),)
        else:
            assert ours._fields == theirs._fields
        for a, b in zip(ours, theirs, strict=True):
            assert isinstance(a, rlx_core.Array)
            np.testing.assert_array_equal(a, b)
            assert (a.shape, str(a.dtype)) == (b.shape, str(rlx.asarray(b).dtype))


REFUSALS: dict[str, tuple[Callable[[], Any], type[RlxError], str]] = {
    "nonzero": (lambda: rlx_core.jit(rlx.nonzero)(X), TraceError, "only known when the program runs"),
    "nonzero of a scalar": (lambda: rlx.nonzero(3.0), AxisError, "no axes"),
    "unique_values": (lambda: rlx_core.jit(rlx.unique_values)(X), TraceError, "only known when the program runs"),
    "take": (lambda: rlx.take(LINE, [-6], axis=0), IndexRangeError, "-6 is outside an axis of 5"),
    "vecdot": (lambda: rlx_core.vecdot(X, X[..., :1]), ShapeError, "one size in both"),
    "vecdot of unequal ranks": (lambda: rlx_core.vecdot(X, LINE, axis=0), ShapeError, "one size in both"),
    "unequal parts": (lambda: rlx.split(LINE, 2), ShapeError, "5 is not a multiple of 2"),
    "squeeze of 3": (lambda: rlx.squeeze(X, 1), ShapeError, "3 elements, not 1"),
    "axis needed": (lambda: rlx.cumulative_sum(X), ShapeError, "3 axes"),
    "step 0": (lambda: rlx.arange(0, 5, 0), ShapeError, "never reaches"),
    "repeats": (lambda: rlx.repeat(LINE, [1, 2], axis=0), ShapeError, "5 numbers"),
    "vector transposed": (lambda: rlx.matrix_transpose(LINE), ShapeError, "2 or more"),
    "moveaxis": (lambda: rlx.moveaxis(X, (0, 1), 2), ShapeError, "2 axes cannot move to 1"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_says_why(name: str) -> None:
    call, error, says = REFUSALS[name]

    with pytest.raises(error, match=says):
        call()


def traced(function: Callable[..., Any], *types: str) -> tuple[Any, Builder]:
    builder = Builder("traced")
    with building(builder):
        return function(*(builder.input(f"x{i}", spec(t)) for i, t in enumerate(types))), builder


SYMBOLIC: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "sum": (lambda x: rlx.sum(x, axis=1), "f32[n, 3]", "f32[n]"),
    "mean": (lambda x: rlx.mean(x, axis=0), "f32[n, 3]", "f32[3]"),
    "max": (lambda x: rlx.max(x, axis=0), "f32[n, 3]", "f32[3]"),
    "concat": (lambda x: rlx.concat([x, x, rlx.zeros((2, 3))]), "f32[n, 3]", "f32[2*n + 2, 3]"),
    "stack": (lambda x: rlx.stack([x, x], axis=1), "f32[n, 3]", "f32[n, 2, 3]"),
    "flatten": (lambda x: rlx.reshape(x, -1), "f32[n, 3]", "f32[3*n]"),
    "slice": (lambda x: x[1:], "f32[n, 3]", "f32[n - min(1, n), 3]"),
    "last": (lambda x: x[-1], "f32[n, 3]", "f32[3]"),
    "reversed": (lambda x: x[::-1], "f32[n, 3]", "f32[n, 3]"),
    "tile": (lambda x: rlx.tile(x, (2, 1)), "f32[n, 3]", "f32[2*n, 3]"),
    "repeat": (lambda x: rlx.repeat(x, 3, axis=0), "f32[n, 3]", "f32[3*n, 3]"),
    "roll": (lambda x: rlx.roll(x, 1, axis=0), "f32[n, 3]", "f32[n, 3]"),
    "split": (lambda x: rlx.split(x, 2, axis=0)[1], "f32[2*n, 3]", "f32[n, 3]"),
    "diag": (lambda x: rlx.diag(x), "f32[n]", "f32[n, n]"),
    "arange": (lambda x: rlx.arange(x.shape[0]), "f32[n]", "i64[n]"),
    "tril": (lambda x: rlx.tril(x), "f32[n, n]", "f32[n, n]"),
    "pad": (lambda x: rlx.pad(x, (1, 2)), "f32[n]", "f32[n + 3]"),
    "top_k": (lambda x: rlx.top_k(x, 2)[1], "f32[n]", "i64[2]"),
    "cumulative_prod": (lambda x: rlx.cumulative_prod(x), "f32[n]", "f32[n]"),
    "var": (lambda x: rlx.var(x, correction=1), "f32[n]", "f32[]"),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_unknown_sizes_stay_expressions(name: str) -> None:
    function, given, wanted = SYMBOLIC[name]

    assert traced(function, given)[0].type == spec(wanted)


def test_an_extreme_of_an_unknown_size_guards_against_none() -> None:
    _, builder = traced(lambda x: rlx.max(x), "f32[n]")

    assert [repr(g) for g in builder.guards] == ["n > 0"]


def test_a_value_has_the_methods_of_an_array() -> None:
    builder = Builder("methods")
    x = builder.input("x", TensorType(spec("f64[2, 3, 4]").dtype, X.shape))
    outputs = [
        x.sum(axis=0),
        x.mean(),
        x.max(axis=-1),
        x.min(keepdims=True),
        x.reshape(6, -1),
        x.transpose(2, 1, 0),
        x[0].T,
    ]

    found = interpret(builder.finish(outputs), {"x": X})

    wanted = [X.sum(0), X.mean(), X.max(-1), X.min(keepdims=True), X.reshape(6, -1), X.transpose(2, 1, 0), X[0].T]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-15)
