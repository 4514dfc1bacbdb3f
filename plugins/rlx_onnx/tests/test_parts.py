"""Models some of whose sizes are found only when they run: programs, and steps on the host between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_graphs import model, node

import rlx_core as rlx
from rlx_core.errors import DtypeError, FormatError, ShapeError, UnsupportedError, WrongInputCountError
from rlx_core.importing.host_steps import PartitionedFunction
from rlx_onnx import load
from rlx_onnx.handlers.detection import suppressed


def chosen() -> Any:
    """Elements of `2·x` beyond 1, their sum and how many there are."""
    nodes = [
        node("Mul", ["x", "two"], ["h"]),
        node("Greater", ["h", "one"], ["is"]),
        node("NonZero", ["is"], ["at"], name="where"),
        node("Transpose", ["at"], ["places"]),
        node("GatherND", ["h", "places"], ["found"]),
        node("ReduceSum", ["found"], ["sum"], keepdims=0),
        node("Shape", ["found"], ["count"]),
    ]
    tensors = {"two": np.float32(2), "one": np.float32(1)}
    return model(nodes, ["x: f32[n, 3]"], ["found: f32[k]", "sum: f32[]", "count: i64[1]"], tensors)


@pytest.fixture(scope="module")
def compiled() -> Any:
    return load(chosen()).compile()


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_results_are_as_many_as_there_are(compiled: Any, rows: int) -> None:
    """One compilation serves every size that comes in, and every size that is found, none among them."""
    x = np.random.default_rng(rows).normal(size=(rows, 3)).astype("f")
    found = compiled(x)

    wanted = (2 * x)[2 * x > 1]
    np.testing.assert_array_equal(found["found"], wanted)
    np.testing.assert_allclose(found["sum"], wanted.sum(), rtol=1e-6)
    assert found["count"].tolist() == [wanted.size]


def test_the_report_names_what_runs_on_the_host(compiled: Any) -> None:
    said = str(compiled.report)
    assert "2 programs, and 1 steps on the host" in said
    assert "on the host: node where (NonZero)" in said


def test_steps_that_do_not_wait_for_one_another_share_their_programs() -> None:
    """Two places in one order: three programs, not more, whatever order the file has."""
    nodes = [
        node("NonZero", ["x"], ["a"]),
        node("Mul", ["a", "a"], ["b"]),
        node("NonZero", ["y"], ["c"]),
        node("Mul", ["c", "c"], ["d"]),
        node("NonZero", ["d"], ["e"]),
        node("Add", ["e", "e"], ["f"]),
    ]
    found = load(model(nodes, ["x: f32[n]", "y: f32[n]"], ["b: i64[1, k]", "f: i64[2, m]"]))

    compiled: Any = found.compile()
    assert [type(each).__name__ for each in compiled.stages] == [
        "HostStep",
        "HostStep",
        "ProgramPart",
        "HostStep",
        "ProgramPart",
    ]
    x, y = np.float32([0, 3, 0, 4]), np.float32([0, 1, 1, 0])
    assert {name: each.tolist() for name, each in compiled(x, y).items()} == {"b": [[1, 9]], "f": [[0, 0], [0, 2]]}


def test_compress_takes_a_condition_that_is_computed() -> None:
    nodes = [node("Greater", ["x", "zero"], ["is"]), node("Compress", ["w", "is"], ["y"], axis=1)]
    found = load(model(nodes, ["x: f32[4]"], ["y: f32[2, k]"], {"zero": np.float32(0), "w": np.eye(2, 4, dtype="f")}))

    assert found(np.float32([1, -1, 0, 2])).tolist() == [[1, 0], [0, 0]]
    assert found(np.float32([1, 1, 1, 1])).tolist() == np.eye(2, 4).tolist()


def test_what_does_not_fit_is_refused_before_it_runs() -> None:
    compress = model([node("Compress", ["x", "c"], ["y"], axis=0)], ["x: f32[4]", "c: bool[5]"], ["y: f32[k]"])
    with pytest.raises(FormatError, match="a condition of 5 elements for 4"):
        load(compress)
    with pytest.raises(FormatError, match="axis 2 is outside of 1 axes"):
        load(model([node("Unique", ["x"], ["y"], axis=2)], ["x: f32[4]"], ["y: f32[k]"]))


@pytest.mark.parametrize("how", [{}, {"sorted": 0}, {"axis": 0}, {"axis": -1, "sorted": 0}])
def test_unique_says_where_and_how_often(how: dict[str, int]) -> None:
    """Every result puts the operand together again."""
    nodes = [node("Neg", ["x"], ["n"]), node("Unique", ["n"], ["y", "first", "back", "counts"], **how)]
    rank = "k, 2" if how.get("axis") == 0 else "3, k" if "axis" in how else "k"
    outputs = [f"y: f32[{rank}]", "first: i64[k]", "back: i64[m]", "counts: i64[k]"]
    x = np.float32([[2, 2], [1, 1], [2, 2]])

    found = load(model(nodes, ["x: f32[3, 2]"], outputs))(x)

    data, axis = (-x, how["axis"]) if "axis" in how else (-x.ravel(), 0)
    np.testing.assert_array_equal(np.take(found["y"], found["back"], axis=axis), data)
    np.testing.assert_array_equal(np.take(data, found["first"], axis=axis), found["y"])
    np.testing.assert_array_equal(np.bincount(found["back"]), found["counts"])
    first = sorted(range(len(found["first"])), key=lambda i: found["first"][i])
    if how.get("sorted") == 0:
        assert first == list(range(len(first)))
    elif "axis" in how:
        assert found["y"].tolist() == np.unique(data, axis=how["axis"]).tolist()
    else:
        assert found["y"].tolist() == np.unique(data).tolist()


def detector(draw: np.random.Generator) -> Any:
    """A picture through two convolutions to boxes around anchors and scores of three classes, then their suppression."""
    nodes = [
        node("Conv", ["image", "w1", "b1"], ["c1"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["h"]),
        node("Conv", ["h", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        node("Flatten", ["c2"], ["rows"], axis=2),
        node("Reshape", ["c2", "cells"], ["flat"]),
        node("Transpose", ["flat"], ["turned"], perm=[0, 2, 1]),
        node("Split", ["turned", "parts"], ["offsets", "logits"], axis=2),
        node("Add", ["offsets", "anchors"], ["boxes"]),
        node("Transpose", ["logits"], ["classes"], perm=[0, 2, 1]),
        node("Sigmoid", ["classes"], ["scores"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["kept"], name="suppress"),
        node("Gather", ["kept", "column"], ["number"], axis=1),
        node("Squeeze", ["boxes", "first"], ["all"]),
        node("Gather", ["all", "number"], ["found"], axis=0),
    ]
    side = np.arange(8, dtype="f") * 2
    corner = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(1, 64, 2)
    tensors = {
        "w1": draw.normal(size=(6, 3, 3, 3)).astype("f") * np.float32(0.4),
        "b1": np.zeros(6, "f"),
        "w2": draw.normal(size=(7, 6, 3, 3)).astype("f") * np.float32(0.3),
        "anchors": np.concatenate([corner, corner + 5], axis=-1).astype("f"),
        "cells": np.array([1, 7, 64]),
        "parts": np.array([4, 3]),
        "most": np.array([50]),
        "overlap": np.array([0.3], "f"),
        "least": np.array([0.6], "f"),
        "column": np.array(2),
        "first": np.array([0]),
    }
    return model(nodes, ["image: f32[1, 3, 16, 16]"], ["kept: i64[k, 3]", "found: f32[k, 4]"], tensors)


@pytest.mark.medium
def test_a_detector_finds_the_boxes_that_onnxruntime_finds() -> None:
    """As many for each picture as there are in it."""
    runtime = pytest.importorskip("onnxruntime")
    draw = np.random.default_rng(0)
    proto = detector(draw)
    session, found = runtime.InferenceSession(proto.SerializeToString()), load(proto)

    counts = set()
    for scale in (0.0, 0.1, 0.2, 1.0):
        image = (scale * draw.normal(size=(1, 3, 16, 16))).astype("f")
        kept, boxes = session.run(None, {"image": image})
        own = found(image)
        np.testing.assert_array_equal(own["kept"], kept)
        np.testing.assert_allclose(own["found"], boxes, rtol=1e-5, atol=1e-5)
        counts.add(len(kept))
    assert len(counts) > 2
    assert 0 in counts


@pytest.mark.parametrize("seed", range(4))
def test_suppression_keeps_what_a_walk_over_pairs_keeps(seed: int) -> None:
    """The definition: in order of scores, a box stays unless one that stayed overlaps it by more."""
    draw = np.random.default_rng(seed)
    boxes = draw.integers(0, 8, size=(2, 30, 4)).astype("f")
    scores = (draw.integers(0, 6, size=(2, 2, 30)) / 5).astype("f")

    rows = []
    for batch, number in np.ndindex(2, 2):
        kept: list[int] = []
        for i in sorted(range(30), key=lambda i: -scores[batch, number, i]):
            if scores[batch, number, i] > 0.2 and all(overlap(boxes[batch, i], boxes[batch, j]) <= 0.4 for j in kept):
                kept.append(i)
        rows += [[batch, number, i] for i in kept[:7]]
    assert suppressed(boxes, scores, 7, 0.4, np.float32(0.2), centred=False).tolist() == rows


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    a, b = (np.sort(each.reshape(2, 2), axis=0) for each in (a, b))
    sides = np.minimum(a[1], b[1]) - np.maximum(a[0], b[0])
    both = float(np.prod(sides)) if (sides > 0).all() else 0.0
    union = float(np.prod(a[1] - a[0]) + np.prod(b[1] - b[0])) - both
    return both / union if union else 0.0


def test_derivatives_and_files_end_at_the_node_that_they_name() -> None:
    found = load(chosen())

    with pytest.raises(UnsupportedError, match="more than one program") as caught:
        rlx.grad(lambda x: found.function({}, x)["sum"])(np.ones((2, 3), "f"))
    assert "node where (NonZero)" in str(caught.value)
    with pytest.raises(UnsupportedError, match="a file holds one program") as caught:
        rlx.to_bytes(found)
    assert "node where (NonZero)" in str(caught.value)
    with pytest.raises(UnsupportedError, match="runs in parts"):
        rlx.package(found, "m.rlxpack")


def test_a_wrong_call_says_what_it_takes(compiled: Any) -> None:
    assert isinstance(compiled, PartitionedFunction)
    with pytest.raises(WrongInputCountError, match="missing a required argument: 'x'"):
        compiled()
    with pytest.raises(ShapeError, match=r"x must be f32\[n, 3\]"):
        compiled(np.ones((2, 4), "f"))
    with pytest.raises(DtypeError, match="x must be f32"):
        compiled(x=np.ones((2, 3)))


def test_a_size_inside_of_a_branch_is_refused_by_name() -> None:
    inside = helper.make_graph([node("NonZero", ["x"], ["p"], name="inner")], "then", [], [output("p")])
    other = helper.make_graph([node("NonZero", ["w"], ["q"])], "else", [], [output("q")])
    nodes = [node("If", ["is"], ["y"], then_branch=inside, else_branch=other)]

    with pytest.raises(UnsupportedError, match=r"node inner \(NonZero\).*part of a node"):
        load(model(nodes, ["is: bool[]", "x: f32[3]"], ["y: i64[1, k]"], {"w": np.ones(3, "f")}))


def output(name: str) -> Any:
    return helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [1, None])
