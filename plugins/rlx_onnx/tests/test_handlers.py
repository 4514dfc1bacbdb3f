"""Handlers on models written by hand: what ONNX's own tests leave out, or what is worth seeing in every run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_graphs import model, node

import rlx_core as rlx
from rlx_core.errors import UnsupportedError
from rlx_onnx import load


def test_weights_are_parameters_by_their_names_and_numbers_are_constants() -> None:
    """Tensors of floats with an axis are parameters; scalars, and what is read for its numbers, are not."""
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Mul", ["h", "half"], ["g"]),
        node("Reshape", ["g", "shape"], ["y"]),
    ]
    tensors = {"w": np.eye(3, dtype="f"), "half": np.float32(0.5), "shape": np.array([-1, 1])}

    found = load(model(nodes, ["x: f32[n, 3]"], ["y: f32[m, 1]"], tensors))

    assert list(found.parameters) == ["w"]
    assert found(np.ones((2, 3), "f")).tolist() == [[0.5]] * 6


def test_an_imported_model_trains() -> None:
    """The loss of a step in the gradient's direction is lower."""
    found = load(model([node("Gemm", ["x", "w", "b"], ["y"], transB=1)], ["x: f32[n, 4]"], ["y: f32[n, 2]"], _layer()))
    x = np.random.default_rng(0).normal(size=(8, 4)).astype("f")

    def loss(parameters: Any) -> Any:
        return rlx.mean((found.function(parameters, x) - 1.0) ** 2)

    before, gradient = rlx.value_and_grad(loss)(found.parameters)
    after = loss({name: value - 0.1 * gradient[name] for name, value in found.parameters.items()})
    assert after < before


def _layer() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    return {"w": draw.normal(size=(2, 4)).astype("f"), "b": np.zeros(2, "f")}


def test_arithmetic_on_sizes_makes_no_nodes() -> None:
    """Half of an exported graph computes shapes: of it, one reshape is left."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "axes"], ["n1"]),
        node("Mul", ["n1", "two"], ["m"]),
        node("Concat", ["m", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    tensors = {"zero": np.array(0), "axes": np.array([0]), "two": np.array([2]), "rest": np.array([-1])}

    found = load(model(nodes, ["x: f32[batch, 6]"], ["y: f32[m, k]"], tensors))

    assert [each.op.name for each in found.trace().nodes if each.op.name != "core.input"] == ["rlx.reshape"]
    assert str(found.trace().outputs[0].type) == "f32[2*batch, 3]"
    assert found(np.arange(12.0, dtype="f").reshape(2, 6)).shape == (4, 3)


def test_tables_are_read_up_to_a_size_and_from_one_on() -> None:
    """Positions up to a length, as torch's exporter writes them, and those of the last four tokens."""
    nodes = [
        node("Shape", ["x"], ["length"]),
        node("Slice", ["table", "zero", "length", "one"], ["y"]),
        node("Sub", ["length", "four"], ["before"]),
        node("Max", ["before", "zero"], ["start"]),
        node("Slice", ["x", "start", "length"], ["last"]),
    ]
    table = np.arange(20).reshape(2, 10)
    tensors = {"table": table, **{name: np.array([n]) for name, n in {"zero": 0, "one": 1, "four": 4}.items()}}

    found = load(model(nodes, ["x: i64[length]"], ["y: i64[2, length]", "last: i64[k]"], tensors))

    for length in (6, 3):
        result = found(np.arange(length))
        np.testing.assert_array_equal(result["y"], table[:, :length])
        np.testing.assert_array_equal(result["last"], np.arange(length)[-4:])


def test_one_size_serves_every_batch() -> None:
    """A name of a size is a symbol: the program is for all of its sizes."""
    found = load(model([node("Softmax", ["x"], ["y"])], ["x: f32[batch, 5]"], ["y: f32[batch, 5]"]))

    for batch in (1, 3):
        np.testing.assert_allclose(found(np.zeros((batch, 5), "f")), np.full((batch, 5), 0.2), rtol=1e-6)


def test_every_missing_operation_is_named_at_once() -> None:
    """One reading says whether a model can be imported."""
    nodes = [node("Foo", ["x"], ["a"], domain="acme"), node("StringNormalizer", ["a"], ["y"], name="words")]

    with pytest.raises(UnsupportedError) as caught:
        load(model(nodes, ["x: f32[2]"], ["y: f32[2]"], domains={"acme": 1}))

    assert [fact.label for fact in caught.value.facts] == ["acme.Foo", "StringNormalizer"]
    assert "1 use; instead: texts in lower case" in str(caught.value)
    assert "node words" in str(caught.value)


def test_an_input_that_must_be_known_is_said_and_may_be_given() -> None:
    """Sizes that a model takes as an input are part of the program."""
    proto = model([node("Reshape", ["x", "shape"], ["y"])], ["x: f32[6]", "shape: i64[2]"], ["y: f32[a, b]"])

    with pytest.raises(UnsupportedError, match=r"shape, must be known .* comes from shape") as caught:
        load(proto)
    assert "known=" in (caught.value.hint or "")

    assert load(proto, known={"shape": np.array([2, 3])})(np.ones(6, "f")).shape == (2, 3)


def test_only_the_branch_that_is_chosen_runs() -> None:
    """An `If` on an input is a conditional of rlx, nested ones too."""
    inner = helper.make_graph([node("Neg", ["x"], ["n"])], "inner", [], [helper.make_tensor_value_info("n", 1, [2])])
    outer = helper.make_graph([node("Exp", ["x"], ["e"])], "outer", [], [helper.make_tensor_value_info("e", 1, [2])])
    proto = model(
        [node("If", ["c"], ["y"], then_branch=inner, else_branch=outer)], ["c: bool[]", "x: f32[2]"], ["y: f32[2]"]
    )

    found = load(proto)

    assert "rlx.if" in [each.op.name for each in found.trace().nodes]
    x = np.array([0.0, 1.0], "f")
    np.testing.assert_allclose(found(np.array(True), x), -x)
    np.testing.assert_allclose(found(np.array(False), x), np.exp(x), rtol=1e-6)


def test_results_come_by_name_and_sequences_as_lists() -> None:
    """One result is itself; several are in a dictionary."""
    nodes = [node("Split", ["x"], ["a", "b"], num_outputs=2), node("Neg", ["x"], ["c"])]

    found = load(model(nodes, ["x: f32[4]"], ["a: f32[2]", "b: f32[2]", "c: f32[4]"]))(np.arange(4.0, dtype="f"))

    assert {name: value.tolist() for name, value in found.items()} == {"a": [0, 1], "b": [2, 3], "c": [0, -1, -2, -3]}


def test_old_versions_and_functions_of_the_model_are_brought_to_one_form() -> None:
    """Version 7's Upsample with its attribute, and a function that the model defines."""
    old = model(
        [node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 2.0])],
        ["x: f32[1, 1, 1, 2]"],
        ["y: f32[a, b, c, d]"],
        opset=7,
    )
    assert load(old)(np.array([[[[1, 2]]]], "f")).tolist() == [[[[1, 1, 2, 2], [1, 1, 2, 2]]]]

    twice = helper.make_function(
        "acme", "Twice", ["v"], ["w"], [node("Add", ["v", "v"], ["w"])], [helper.make_opsetid("", 21)]
    )
    proto = model(
        [node("Twice", ["x"], ["y"], domain="acme")],
        ["x: f32[2]"],
        ["y: f32[2]"],
        domains={"acme": 1},
        functions=[twice],
    )
    assert load(proto)(np.ones(2, "f")).tolist() == [2, 2]


@pytest.mark.medium
def test_a_recurrent_layer_is_differentiable() -> None:
    """An LSTM's gradient through its scan agrees with finite differences."""
    draw = np.random.default_rng(3)
    tensors = {name: draw.normal(size=size).astype("f") for name, size in (("w", (1, 8, 3)), ("r", (1, 8, 2)))}
    found = load(
        model(
            [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2)], ["x: f32[4, 1, 3]"], ["y: f32[4, 1, 1, 2]"], tensors
        )
    )
    x = draw.normal(size=(4, 1, 3)).astype("f")

    def total(x: Any) -> Any:
        return rlx.sum(found.function(found.parameters, x))

    step = np.zeros_like(x)
    step[1, 0, 2] = 1e-2
    slope = (total(x + step) - total(x - step)) / 2e-2
    np.testing.assert_allclose(rlx.grad(total)(x)[1, 0, 2], slope, rtol=2e-2)  # f32: a difference of sums near 1


@pytest.mark.parametrize(("size", "scale"), [(90, 0.3), (90, 1 / 30), (4, 4e-7)])
def test_pictures_are_made_much_smaller(size: int, scale: float) -> None:
    """What a place is read from grows as the scale shrinks: by slices, by a product, and where nothing is left at once."""
    proto = model(
        [node("Resize", ["x", "", "s"], ["y"], mode="cubic", antialias=1)],
        [f"x: f32[1, 2, 5, {size}]"],
        ["y: f32[a, b, c, d]"],
        {"s": np.array([1, 1, 1, scale], "f")},
    )
    x = np.random.default_rng(0).normal(size=(1, 2, 5, size)).astype("f")
    found = load(proto)(x)
    assert found.shape == (1, 2, 5, int(size * np.float32(scale)))
    if found.size:
        np.testing.assert_allclose(found, ReferenceEvaluator(proto).run(None, {"x": x})[0], rtol=2e-5, atol=2e-5)


@pytest.mark.medium
@pytest.mark.parametrize(
    "said",
    [
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        {"mode": "nearest"},
        {"mode": "linear"},
        {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"},
    ],
    ids=lambda said: said["mode"],
)
@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_pictures_of_any_size_are_made_larger(said: dict[str, Any], by: str) -> None:
    """Three times as high and twice as wide, as pictures of a known size are."""
    sized = [
        node("Shape", ["x"], ["s"]),
        node("Mul", ["s", "by"], ["to"]),
        node("Resize", ["x", "", "", "to"], ["y"], **said),
    ]
    nodes = sized if by == "sizes" else [node("Resize", ["x", "", "by"], ["y"], **said)]
    times = np.array([1, 1, 3, 2], "f" if by == "scales" else "i8")
    proto = model(nodes, ["x: f32[n, 2, h, w]"], ["y: f32[n, 2, a, b]"], {"by": times})

    found = load(proto)

    for shape in ((1, 2, 5, 4), (2, 2, 1, 3)):
        x = np.random.default_rng(0).normal(size=shape).astype("f")
        known = load(proto, inputs={"x": f"f32{list(shape)}"})
        np.testing.assert_allclose(found(x), known(x), rtol=1e-5, atol=1e-6)


def test_pictures_of_any_size_that_are_read_by_their_size_are_refused() -> None:
    proto = model(
        [node("Resize", ["x", "", "by"], ["y"], mode="linear", coordinate_transformation_mode="align_corners")],
        ["x: f32[1, 1, h, 2]"], ["y: f32[1, 1, a, 2]"], {"by": np.array([1, 1, 2, 1], "f")},
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="an axis of h that is read by its size"):
        load(proto)
    proto = model([node("Resize", ["x", "", "by"], ["y"])], ["x: f32[h]"], ["y: f32[a]"], {"by": np.array([1.5], "f")})
    with pytest.raises(UnsupportedError, match=r"an axis of h that becomes 1\.5 times as large"):
        load(proto)
