"""Numbers that decide a size and are computed by the model: `Range` and `Slice` up to them, `TopK` and `OneHot` of so many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_graphs import model, node

from rlx_core.errors import GuardError, ShapeError, UnsupportedError
from rlx_onnx import load

ZERO, ONE = np.array(0), np.array(1)


def masked() -> Any:
    """1 where a place is within the length of its row; as many places as the longest row has."""
    nodes = [
        node("ReduceMax", ["lengths"], ["most"], keepdims=0),
        node("Range", ["zero", "most", "one"], ["places"], name="places"),
        node("Unsqueeze", ["lengths", "axis"], ["rows"]),
        node("Less", ["places", "rows"], ["is"]),
        node("Cast", ["is"], ["mask"], to=1),
    ]
    return model(nodes, ["lengths: i64[b]"], ["mask: f32[b, m]"], {"zero": ZERO, "one": ONE, "axis": np.array([1])})


def chosen() -> Any:
    """As many of the largest as are beyond 0."""
    nodes = [
        node("Greater", ["x", "nothing"], ["is"]),
        node("Cast", ["is"], ["each"], to=7),
        node("ReduceSum", ["each"], ["k"]),
        node("TopK", ["x", "k"], ["y", "at"], axis=0, name="largest"),
    ]
    return model(nodes, ["x: f32[n]"], ["y: f32[k]", "at: i64[k]"], {"nothing": np.float32(0)})


def test_one_compilation_serves_every_length_that_is_computed() -> None:
    compiled = load(masked()).compile()
    for lengths in ([1, 3, 2], [4], [0, 0]):
        found = compiled(np.array(lengths))
        np.testing.assert_array_equal(found, np.arange(max(lengths)) < np.array(lengths)[:, None])
    assert "on the host: node places (Range)" in str(compiled.report)


@pytest.mark.parametrize(
    ("limits", "expected"), [((1, 2, 0.5), [1, 1.5]), ((5, 2, -1), [5, 4, 3]), ((2, 1, 1), []), ((0, 1, 0.3), 4)]
)
def test_steps_of_numbers_that_are_given(limits: tuple[float, ...], expected: Any) -> None:
    proto = model([node("Range", ["a", "b", "c"], ["y"])], ["a: f32[]", "b: f32[]", "c: f32[]"], ["y: f32[k]"])
    found = load(proto)(*map(np.float32, limits))
    assert found.dtype == np.float32
    if isinstance(expected, list):
        assert found.tolist() == expected
    else:
        assert len(found) == expected


def test_steps_that_do_not_end_are_refused() -> None:
    found = load(model([node("Range", ["a", "b", "c"], ["y"])], ["a: i64[]", "b: i64[]", "c: i64[]"], ["y: i64[k]"]))
    with pytest.raises(ShapeError, match="steps of 0 do not end"):
        found(np.array(0), np.array(3), np.array(0))


@pytest.mark.parametrize("rows", range(6))
def test_steps_up_to_a_size_are_part_of_one_program(rows: int) -> None:
    nodes = [
        node("Shape", ["x"], ["dims"]),
        node("Squeeze", ["dims"], ["n"]),
        node("Range", ["one", "n", "two"], ["y"]),
    ]
    found = load(model(nodes, ["x: f32[n]"], ["y: i64[k]"], {"one": ONE, "two": np.array(2)}))
    assert found(np.ones(rows, "f")).tolist() == list(range(1, rows, 2))


def test_as_many_of_the_largest_as_the_model_says() -> None:
    compiled = load(chosen()).compile()
    for x in ([1, -2, 3, 0.5], [-1, -1], [2]):
        found = compiled(np.float32(x))
        assert found["y"].tolist() == sorted((each for each in x if each > 0), reverse=True)
        assert [x[at] for at in found["at"]] == found["y"].tolist()


def test_more_than_there_are_is_an_error_that_says_both() -> None:
    found = load(model([node("TopK", ["x", "k"], ["y", "i"])], ["x: f32[4]", "k: i64[1]"], ["y: f32[k]", "i: i64[k]"]))
    assert found(np.arange(4, dtype="f"), np.array([3]))["y"].tolist() == [3, 2, 1]
    with pytest.raises(GuardError, match="4 and 5"):
        found(np.arange(4, dtype="f"), np.array([5]))
    with pytest.raises(ShapeError, match=r"node y \(TopK\): its operands do not fit"):
        found(np.arange(4, dtype="f"), np.array([-1]))


def test_the_smaller_of_a_size_and_a_number_is_found_without_a_step() -> None:
    nodes = [
        node("Shape", ["x"], ["n"]),
        node("Min", ["n", "three"], ["k"]),
        node("TopK", ["x", "k"], ["y", "i"]),
    ]
    found = load(model(nodes, ["x: f32[n]"], ["y: f32[k]", "i: i64[k]"], {"three": np.array([3])}))
    assert found(np.arange(2, dtype="f"))["y"].tolist() == [1, 0]
    assert found(np.arange(9, dtype="f"))["y"].tolist() == [8, 7, 6]


def test_the_depth_of_one_hot_rows_may_be_computed() -> None:
    nodes = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Add", ["most", "one"], ["depth"]),
        node("OneHot", ["x", "depth", "values"], ["y"]),
    ]
    found = load(model(nodes, ["x: i64[n]"], ["y: f32[n, k]"], {"one": ONE, "values": np.float32([0, 1])}))
    for x in ([1, 2], [0, 0, 3]):
        np.testing.assert_array_equal(found(np.array(x)), np.eye(max(x) + 1)[x])


def sliced(**tensors: Any) -> Any:
    """Up to a place that the model computes: as many rows as the longest of some."""
    nodes = [
        node("ReduceMax", ["lengths"], ["end"], keepdims=1),
        node("Slice", ["x", "start", "end", "axis", "step"], ["y"], name="rows"),
    ]
    return model(nodes, ["x: f32[n, m]", "lengths: i64[b]"], ["y: f32[k, m]"], tensors)


@pytest.mark.parametrize(("start", "step"), [(0, 1), (1, 2), (-9, 1), (100, -1)])
@pytest.mark.parametrize("axis", [0, -1])
def test_the_end_of_a_slice_may_be_computed(start: int, step: int, axis: int) -> None:
    found = load(sliced(start=np.array([start]), axis=np.array([axis]), step=np.array([step]))).compile()
    x = np.arange(20, dtype="f").reshape(4, 5)
    for lengths in ([1, 3, 2], [4], [0, 0], [7], [-1]):
        rows = slice(start, max(lengths), step)
        np.testing.assert_array_equal(found(x, np.array(lengths)), x[rows] if axis == 0 else x[:, rows])
    assert "on the host: node rows (Slice)" in str(found.report)


def test_inside_of_a_branch_the_numbers_must_be_known() -> None:
    then = helper.make_graph([node("Range", ["zero", "n", "one"], ["a"], name="inner")], "then", [], [_ints("a")])
    other = helper.make_graph([node("Identity", ["x"], ["b"])], "other", [], [_ints("b")])
    nodes = [
        node("ReduceMax", ["x"], ["n"], keepdims=0),
        node("Greater", ["n", "zero"], ["is"]),
        node("If", ["is"], ["y"], then_branch=then, else_branch=other),
    ]
    with pytest.raises(UnsupportedError, match=r"node inner \(Range\).*must be known"):
        load(model(nodes, ["x: i64[n]"], ["y: i64[k]"], {"zero": ZERO, "one": ONE}))


def _ints(name: str) -> Any:
    return helper.make_tensor_value_info(name, 7, [None])
