"""Indexing values as NumPy indexes arrays: same elements, same dims, and refusals where NumPy would need the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import ops
from rlx_core.errors import DtypeError, GuardError, IndexRangeError, RlxError, ShapeError
from rlx_core.ir.bind import bind
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec

X = np.arange(24.0).reshape(2, 3, 4)
I = np.array([[0, 2], [1, -1]])  # noqa: E741  (the index array, as in NumPy's manual)

KEYS: dict[str, Any] = {
    "an integer": np.s_[0],
    "from the end": np.s_[-1, -1, -1],
    "dots": np.s_[..., 1],
    "new axes": np.s_[:, None, ::-1, None],
    "a window": np.s_[1:, ::2, -3:-1],
    "backwards by two": np.s_[:, ::-2],
    "backwards from a place": np.s_[..., 2:0:-1],
    "an empty window": np.s_[5:2],
    "past the end": np.s_[:, 1:99],
    "an index array": np.s_[:, I],
    "index arrays side by side": np.s_[I % 2, I],
    "index arrays that broadcast": np.s_[:, I, I[0]],
    "index arrays apart": np.s_[I % 2, :, I],
    "an integer apart from an array": np.s_[0, :, I],
    "an integer beside an array": np.s_[:, 0, I],
    "arrays parted by a new axis": np.s_[I % 2, None, I],
    "dots between arrays": np.s_[I % 2, ..., I],
    "one place of each row": np.s_[np.arange(2), [2, -1]],
    "places of each row": np.s_[np.arange(2)[:, None], I],
    "one place of each row and column": np.s_[np.arange(2)[:, None], np.arange(3), [[3, 0, -1], [1, 1, 2]]],
    "rows counted along another axis": np.s_[np.arange(2), I],
    "rows counted backwards": np.s_[np.arange(2)[::-1], [2, -1]],
    "fewer rows than there are": np.s_[np.arange(1), [2]],
    "columns counted": np.s_[:, np.arange(3), [3, 0, -1]],
    "an empty list": np.s_[[]],
    "a list": np.s_[:, [2, 0]],
    "unsigned": np.s_[:, np.array([1, 2], np.uint8)],
    "a mask of an axis": np.s_[:, [True, False, True]],
    "a mask of everything": np.s_[X > 10],
    "a mask and an integer": np.s_[1, [True, False, True]],
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_selects_what_numpy_selects(name: str) -> None:
    builder = Builder("getitem")
    x = builder.input("x", spec("f64[2, 3, 4]"))
    graph = builder.finish([x[KEYS[name]]])

    (found,) = interpret(graph, {"x": X})

    wanted = X[KEYS[name]]
    assert graph.outputs[0].shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["i64", "i32", "i8", "u8"])
def test_a_computed_index_counts_from_the_end_where_it_is_negative(dtype: str) -> None:
    index = np.abs(I) if dtype == "u8" else I
    builder = Builder("getitem")
    x, i = builder.input("x", spec("f64[2, 3, 4]")), builder.input("i", spec(f"{dtype}[2, 2]"))
    with building(builder):
        outputs = [x[:, i], x[I % 2, i], x[..., i, None]]

    found = interpret(builder.finish(outputs), {"x": X, "i": index})

    for ours, theirs in zip(found, [X[:, index], X[I % 2, index], X[..., index, None]], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_an_array_that_counts_the_rows_makes_them_a_batch() -> None:
    """`x[arange(n), labels]` is one gather of the labels, whoever counts; without the arithmetic of index tuples."""
    builder = Builder("getitem")
    x, labels = builder.input("x", spec("f64[n, 4]")), builder.input("labels", spec("i32[n]"))
    with building(builder):
        rows = [ops.arange(x.shape[0]), ops.arange(x.shape[0]).astype("u64")]
        graph = builder.finish([x[r, labels] for r in rows])
    gathers = [n for n in graph.nodes if n.op.name == "rlx.gather"]
    assert [(n.op.axis, n.op.batch_dims) for n in gathers] == [(1, 1)] * 2
    assert not any(n.op.name in ("rlx.mul", "rlx.transpose") for n in graph.nodes)
    table, places = np.arange(12.0).reshape(3, 4), np.array([1, -1, 3], np.int32)
    for found in interpret(graph, {"x": table, "labels": places}):
        np.testing.assert_array_equal(found, table[np.arange(3), places])


def test_what_is_read_at_one_place_of_each_row_is_differentiated_there() -> None:
    table, places = np.arange(12.0).reshape(3, 4), np.array([1, 0, 3])
    slope = rlx.jit(rlx.grad(lambda x, i: (x[np.arange(3), i] ** 2.0).sum()))(table, places)
    wanted = np.zeros((3, 4))
    wanted[np.arange(3), places] = 2 * table[np.arange(3), places]
    np.testing.assert_array_equal(slope, wanted)


def test_a_computed_index_outside_is_refused_when_the_program_runs() -> None:
    """Each of several indices is checked against its own axis, not only their combination against the product."""
    builder = Builder("getitem")
    x, i = builder.input("x", spec("f64[2, 3, 4]")), builder.input("i", spec("i64[]"))
    graph = builder.finish([x[i, i]])

    with pytest.raises(IndexRangeError, match="outside an axis"):
        interpret(graph, {"x": X, "i": np.asarray(2)})


REFUSED: dict[str, tuple[Any, type[RlxError], str]] = {
    "outside": (np.s_[2], IndexRangeError, "index 2 is outside an axis of 2"),
    "outside, from the end": (np.s_[:, -4], IndexRangeError, "index -4 is outside an axis of 3"),
    "an array outside": (np.s_[:, [0, 3]], IndexRangeError, "index 3 is outside an axis of 3"),
    "too many": (np.s_[0, 0, 0, 0], IndexRangeError, "4 indices for 3 axes"),
    "dots twice": (np.s_[..., 0, ...], IndexRangeError, "once, not twice"),
    "a float": (np.s_[:, [0.5]], DtypeError, "must be an integer, not float64"),
    "a single bool": (np.s_[True], DtypeError, "single bool"),
    "a mask of another size": (np.s_[:, [True, False]], IndexRangeError, "2 elements, its axis 3"),
    "step 0": (np.s_[::0], ShapeError, "cannot be 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_key_says_what_was_wrong(name: str) -> None:
    key, error, says = REFUSED[name]
    x = Builder("getitem").input("x", spec("f64[2, 3, 4]"))

    with pytest.raises(error, match=says):
        x[key]


def test_a_computed_mask_is_refused_with_what_to_use_instead() -> None:
    x = Builder("getitem").input("x", spec("f64[3]"))

    with pytest.raises(DtypeError, match="only known when the program runs") as caught:
        x[x > 0]
    assert "rlx.where" in str(caught.value.hint)


def test_a_slice_of_an_unknown_size_has_an_expression_for_its_size() -> None:
    x = Builder("getitem").input("x", spec("f64[n]"))

    assert x[::-1].type == spec("f64[n]")
    assert x[:4].type == x[-4:].type == spec("f64[min(4, n)]")
    assert x[1:].type == x[:-1].type == spec("f64[n - min(1, n)]")
    assert x[::2].type == x[::-2].type == spec("f64[(n + 1)//2]")
    assert x[:1].type == x[-1:].type == spec("f64[1]")
    assert Builder("even").input("x", spec("f64[2*n]"))[::2].type == spec("f64[n]")


SLICES = [
    np.s_[:4],
    np.s_[1:],
    np.s_[::2],
    np.s_[-3:],
    np.s_[:-2],
    np.s_[2:5],
    np.s_[-5:-2],
    np.s_[1:-2],
    np.s_[-4:3],
    np.s_[5:2],
    np.s_[-1:-3],
    np.s_[1::3],
    np.s_[-6:5:2],
    np.s_[::-3],
    np.s_[4::-1],
    np.s_[-2:1:-2],
    np.s_[:3:-1],
    np.s_[:-4:-2],
]


@pytest.mark.parametrize("key", SLICES, ids=str)
def test_a_slice_of_an_unknown_size_is_clamped_as_numpy_clamps_it(key: slice) -> None:
    graph = rlx.trace(rlx.value_and_grad(lambda x: rlx.sum(x[:, key] * 3)), rlx.spec("f32[2, n]"))
    taken = rlx.trace(lambda x: x[:, key], rlx.spec("f32[2, n]"))
    for size in range(9):
        x = np.arange(2 * size, dtype=np.float32).reshape(2, size)
        wanted = np.zeros_like(x)
        wanted[:, key] = 3
        bound, _ = bind(taken, DimBinding.of(n=size))
        np.testing.assert_array_equal(rlx.interpret(bound, {"x": x})[0], x[:, key])
        total, gradient = rlx.interpret(bind(graph, DimBinding.of(n=size))[0], {"x": x})
        np.testing.assert_array_equal(gradient, wanted)
        assert total == np.sum(x[:, key] * 3)


@pytest.mark.parametrize("key", [*SLICES[:6], SLICES[-2]], ids=str)
def test_a_compiled_slice_is_numpy_s_at_every_size(key: slice) -> None:
    compiled = rlx.compile(lambda x: x[:, key] * 2, rlx.spec("f32[2, n]"))
    for size in (0, 1, 3, 4, 7):
        x = np.arange(2 * size, dtype=np.float32).reshape(2, size)
        np.testing.assert_array_equal(compiled(x), x[:, key] * 2)


def test_a_slice_of_one_element_has_one_so_that_it_broadcasts() -> None:
    compiled = rlx.compile(lambda x: x - x[:, -1:] + x[:, 1:2], rlx.spec("f32[2, n]"))
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(compiled(x), x - x[:, -1:] + x[:, 1:2])
    with pytest.raises(GuardError, match="n >= 2"):
        compiled(x[:, :1])


def test_a_size_as_a_bound_is_taken_at_its_word() -> None:
    graph = rlx.trace(lambda x: rlx.asarray(np.arange(6))[: x.shape[0]], rlx.spec("f32[n]"))
    assert graph.output_types == (spec("i64[n]"),)
    bind(graph, DimBinding.of(n=6))
    with pytest.raises(GuardError, match="6 >= n"):
        bind(graph, DimBinding.of(n=7))


def test_a_clamped_slice_meets_a_known_size_under_a_guard() -> None:
    graph = rlx.trace(lambda x: rlx.reshape(x[:, :4], (4, 2)) + np.ones((4, 1)), rlx.spec("f32[2, n]"))
    bind(graph, DimBinding.of(n=9))
    with pytest.raises(GuardError, match=r"min\(4, n\)"):
        bind(graph, DimBinding.of(n=3))
