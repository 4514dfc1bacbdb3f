"""What a graph says of sizes that are symbols: relations that become guards, and graphs that are other ones for other sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from onnx import TensorProto, helper
from onnx_graphs import model, node

import rlx_core as rlx
from rlx_core.errors import BindingError, CallbackError, GuardError, ShapeError, UnsupportedError
from rlx_onnx import load

ONE, LAST = np.array(1), np.array([-1])


def ones(*sizes: int) -> np.ndarray:
    return np.arange(np.prod(sizes), dtype="f").reshape(sizes)


# ------------------------------------------------------------------------------------------ guards


def test_an_unknown_axis_that_is_squeezed_has_one_element() -> None:
    found = load(model([node("Squeeze", ["x", "last"], ["y"])], ["x: f32[n, m]"], ["y: f32[n]"], {"last": LAST}))

    assert found(ones(3, 1)).tolist() == [0, 1, 2]
    assert found(ones(2, 1)).tolist() == [0, 1]
    with pytest.raises(GuardError, match="m == 1 does not hold") as caught:
        found(ones(3, 2))
    assert "node y (Squeeze): axis 1, which is squeezed" in str(caught.value)


def test_an_axis_of_known_size_that_is_squeezed_is_refused_when_the_model_is_read() -> None:
    with pytest.raises(ShapeError, match=r"node y \(Squeeze\): axis 1, which is squeezed: 2 == 1"):
        load(model([node("Squeeze", ["x", "last"], ["y"])], ["x: f32[n, 2]"], ["y: f32[n]"], {"last": LAST}))


def test_two_names_of_a_size_are_equal_where_one_expands_to_the_other() -> None:
    nodes = [node("Shape", ["y"], ["wanted"]), node("Expand", ["x", "wanted"], ["z"])]
    found = load(model(nodes, ["x: f32[n]", "y: f32[k, m]"], ["z: f32[k, m]"]))

    assert found(ones(3), ones(2, 3)).tolist() == [[0, 1, 2]] * 2
    with pytest.raises(GuardError, match="n == m does not hold") as caught:
        found(ones(3), ones(2, 4))
    assert "node z (Expand)" in str(caught.value)


@pytest.mark.medium
def test_a_first_state_for_one_sequence_makes_the_batch_one() -> None:
    draw = np.random.default_rng(0)
    tensors = {name: draw.normal(size=(1, 6, 2)).astype("f") for name in ("w", "r")}
    tensors["h"] = draw.normal(size=(1, 1, 2)).astype("f")
    nodes = [node("GRU", ["x", "w", "r", "", "", "h"], ["", "y"], hidden_size=2)]
    found = load(model(nodes, ["x: f32[time, batch, 2]"], ["y: f32[1, batch, 2]"], tensors))

    assert found(ones(3, 1, 2)).shape == (1, 1, 2)
    with pytest.raises(GuardError, match="1 == batch does not hold"):
        found(ones(3, 2, 2))


@pytest.mark.parametrize("unknown", ["?", "-1"])
def test_names_that_exporters_write_for_every_unknown_size_are_no_names(unknown: str) -> None:
    proto = model([node("Neg", ["x"], ["y"])], ["x: f32[n, m]"], ["y: f32[n, m]"])
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_param = unknown

    assert load(proto)(ones(2, 3)).shape == (2, 3)


def test_tensors_of_old_files_need_not_be_inputs() -> None:
    proto = model([node("Mul", ["x", "w"], ["y"])], ["x: f32[2]"], ["y: f32[2]"], {"w": ones(2)}, opset=7)
    proto.ir_version = 3

    assert load(proto)(ones(2)).tolist() == [0, 1]


# ------------------------------------------------------------------------------------------ other graphs for other sizes


def squeezed_if_one() -> Any:
    """What `x.squeeze(-1) @ w` is as torch's exporter writes it: a graph without the axis, or the value as it is."""
    then = helper.make_graph([node("Squeeze", ["h", "last"], ["s"])], "then", [], [_floats("s")])
    other = helper.make_graph([node("Identity", ["h"], ["i"])], "other", [], [_floats("i")])
    nodes = [
        node("Mul", ["x", "w"], ["h"]),
        node("Shape", ["h"], ["sizes"]),
        node("Gather", ["sizes", "last"], ["size"]),
        node("Equal", ["size", "one"], ["is"]),
        node("If", ["is"], ["y"], name="choose", then_branch=then, else_branch=other),
    ]
    return model(nodes, ["x: f32[n, m]"], ["y: f32[a, b]"], {"last": LAST, "one": np.array([1]), "w": np.ones(1, "f")})


def _floats(name: str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def test_a_graph_that_depends_on_sizes_is_read_for_those_of_a_call() -> None:
    found = load(squeezed_if_one())

    compiled = found.compile()
    assert compiled(ones(3, 1)).tolist() == [0, 1, 2]
    assert compiled(ones(2, 2)).tolist() == [[0, 1], [2, 3]]
    assert compiled(x=ones(2, 2)).shape == (2, 2)
    report = str(compiled.report)
    assert "a program for each size, because of node choose (If)" in report
    assert "n=3, m=1" in report
    assert "n=2, m=2" in report
    assert "for each size" in repr(compiled)


def test_its_parameters_are_those_it_is_compiled_with() -> None:
    found = load(squeezed_if_one())

    assert list(found.parameters) == ["w"]
    other = evolve(found, parameters={"w": np.full(1, 2, "f")})
    assert other(ones(3, 1)).tolist() == [0, 2, 4]


def test_its_function_is_differentiated_for_sizes_that_are_known() -> None:
    found = load(squeezed_if_one())

    gradient = rlx.grad(lambda p: rlx.sum(found.function(p, ones(3, 1))))(found.parameters)

    assert gradient["w"].tolist() == [3]


def test_there_is_no_program_of_it_for_all_sizes(tmp_path: Path) -> None:
    found = load(squeezed_if_one())

    for attempt in (found.trace, found.bundle, lambda: rlx.save(tmp_path / "m.rlx", found)):
        with pytest.raises(UnsupportedError, match="its graph depends on sizes") as caught:
            attempt()
        assert "inputs=" in (caught.value.hint or "")
    narrowed = load(squeezed_if_one(), inputs={"x": "f32[n, 1]"})
    assert str(narrowed.trace().outputs[0].type) == "f32[n]"
    with pytest.raises(BindingError):
        found(ones(2))


def test_axes_of_one_element_that_are_not_listed_are_found_for_each_size() -> None:
    found = load(model([node("Squeeze", ["x"], ["y"])], ["x: f32[n, 3, m]"], ["y: f32[k]"]))

    assert found(ones(1, 3, 1)).shape == (3,)
    assert found(ones(2, 3, 1)).shape == (2, 3)


def test_graphs_of_one_type_stay_one_program_for_all_sizes() -> None:
    then = helper.make_graph([node("Neg", ["x"], ["n"])], "then", [], [_floats("n")])
    other = helper.make_graph([node("Exp", ["x"], ["e"])], "other", [], [_floats("e")])
    nodes = [
        node("Size", ["x"], ["size"]),
        node("Equal", ["size", "one"], ["is"]),
        node("If", ["is"], ["y"], then_branch=then, else_branch=other),
    ]
    found = load(model(nodes, ["x: f32[n]"], ["y: f32[n]"], {"one": ONE}))

    assert "rlx.if" in [each.op.name for each in found.trace().nodes]
    assert found(np.zeros(1, "f")).tolist() == [0]
    assert found(np.zeros(2, "f")).tolist() == [1, 1]


def only_one_fits() -> Any:
    """Pairs, or triples: of most sizes one of the two is possible."""
    graphs = [
        helper.make_graph(
            [node("Reshape", ["x", by], ["r" + by]), node("ReduceSum", ["r" + by], ["s" + by], keepdims=0)],
            by,
            [],
            [_floats("s" + by)],
        )
        for by in ("pairs", "triples")
    ]
    nodes = [node("If", ["is"], ["y"], then_branch=graphs[0], else_branch=graphs[1])]
    tensors = {"pairs": np.array([2, 2]), "triples": np.array([2, 3])}
    return model(nodes, ["x: f32[n]", "is: bool[]"], ["y: f32[]"], tensors)


@pytest.mark.parametrize("inputs", [None, "numbers"])
def test_a_graph_that_does_not_fit_is_an_error_only_where_it_is_chosen(inputs: str | None) -> None:
    """Guards of a graph that does not run must not be checked: they say what it would need."""
    for size, fits in ((4, True), (6, False)):
        said = {"x": f"f32[{size}]"} if inputs else None
        found = load(only_one_fits(), inputs=said)
        assert found(ones(size), np.array(fits)) == ones(size).sum()
        with pytest.raises(CallbackError, match=f"{size} elements"):
            found(ones(size), np.array(not fits))


def test_relations_that_are_required_outside_too_stay_guards() -> None:
    then = helper.make_graph([node("Squeeze", ["x", "last"], ["n"])], "then", [], [_floats("n")])
    other = helper.make_graph([node("Identity", ["s"], ["e"])], "other", [], [_floats("e")])
    nodes = [node("Squeeze", ["x", "last"], ["s"]), node("If", ["is"], ["y"], then_branch=then, else_branch=other)]
    found = load(model(nodes, ["x: f32[n, m]", "is: bool[]"], ["y: f32[n]"], {"last": LAST}))

    assert str(found.trace().outputs[0].type) == "f32[n]"
    for chosen in (True, False):
        assert found(ones(3, 1), np.array(chosen)).tolist() == [0, 1, 2]


def test_where_neither_graph_fits_the_model_is_wrong() -> None:
    with pytest.raises(ShapeError, match="7 elements"):
        load(only_one_fits(), inputs={"x": "f32[7]"})
