"""Models that are put together wrongly: each is refused with a typed error that names the place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx_graphs import model, node

from rlx_core.errors import BudgetError, CycleError, FormatError, RlxError
from rlx_onnx import load


def tensor(**fields: Any) -> Any:
    return TensorProto(name="w", data_type=TensorProto.FLOAT, **fields)


def with_tensor(each: Any) -> ModelProto:
    found = model([node("Add", ["x", "w"], ["y"])], ["x: f32[2]"], ["y: f32[2]"])
    found.graph.initializer.append(each)
    return found


@pytest.mark.parametrize(
    ("proto", "says"),
    [
        (model([node("Neg", ["z"], ["y"])], ["x: f32[2]"], ["y: f32[2]"]), "'z' is made nowhere"),
        (
            model([node("Neg", ["b"], ["a"]), node("Neg", ["a"], ["b"])], ["x: f32[2]"], ["b: f32[2]"]),
            "'b' is only made later",
        ),
        (model([node("Neg", ["x"], ["x"])], ["x: f32[2]"], ["x: f32[2]"]), "'x' is made twice"),
        (model([node("Neg", ["x"], ["y"])], ["x: f32[2]"], ["z: f32[2]"]), "nothing makes its result 'z'"),
        (model([node("Neg", ["x"], ["y"])], ["x: f32[-2]"], ["y: f32[2]"]), "at least 0, not -2"),
        (with_tensor(tensor(dims=[2], raw_data=b"1234567")), "[2] of FLOAT are 8 bytes, not 7"),
        (with_tensor(tensor(dims=[2], float_data=[1.0])), "do not agree"),
        (with_tensor(tensor(dims=[-1], raw_data=b"")), "[-1] are no sizes"),
        (with_tensor(tensor(dims=[2**31, 2**31], raw_data=b"")), "are no sizes"),
        (with_tensor(TensorProto(name="w", data_type=99, dims=[1], raw_data=b"1")), "elements of type 99"),
        (ModelProto(), "no ONNX model"),
    ],
)
def test_a_broken_model_says_where(proto: ModelProto, says: str) -> None:
    with pytest.raises(FormatError) as caught:
        load(proto)
    assert says in str(caught.value)


def test_functions_that_call_each_other_in_a_circle_are_refused() -> None:
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("acme", 1)]
    functions = [
        helper.make_function("acme", a, ["v"], ["w"], [node(b, ["v"], ["w"], domain="acme")], sets)
        for a, b in (("A", "B"), ("B", "A"))
    ]
    proto = model(
        [node("A", ["x"], ["y"], domain="acme")], ["x: f32[2]"], ["y: f32[2]"], domains={"acme": 1}, functions=functions
    )

    with pytest.raises(CycleError, match="A → B → A"):
        load(proto)


def test_functions_that_double_each_other_are_refused_before_they_are_put_in_place() -> None:
    """Forty functions, each of which calls the next twice, would be 2^40 nodes."""
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("acme", 1)]
    functions = [
        helper.make_function(
            "acme",
            f"F{i}",
            ["v"],
            ["w"],
            [node(f"F{i + 1}", ["v"], ["u"], domain="acme"), node(f"F{i + 1}", ["u"], ["w"], domain="acme")],
            sets,
        )
        for i in range(40)
    ]
    functions.append(helper.make_function("acme", "F40", ["v"], ["w"], [node("Neg", ["v"], ["w"])], sets))
    proto = model(
        [node("F0", ["x"], ["y"], domain="acme")],
        ["x: f32[2]"],
        ["y: f32[2]"],
        domains={"acme": 1},
        functions=functions,
    )

    with pytest.raises(BudgetError, match="with its functions in place has more than 500,000 nodes"):
        load(proto)


def test_a_subgraph_that_captures_what_does_not_exist_is_refused() -> None:
    body = helper.make_graph(
        [node("Neg", ["nothing"], ["n"])], "body", [], [helper.make_tensor_value_info("n", 1, [2])]
    )
    proto = model([node("If", ["c"], ["y"], then_branch=body, else_branch=body)], ["c: bool[]"], ["y: f32[2]"])

    with pytest.raises(FormatError, match="'nothing' is made nowhere"):
        load(proto)


def test_sizes_that_no_memory_holds_are_not_made_while_reading() -> None:
    """A constant of 2^40 numbers is a part of the program, whose plan says what it takes."""
    proto = model([node("ConstantOfShape", ["s"], ["y"])], [], ["y: f32[a, b]"], {"s": np.array([2**20, 2**20])})

    found = load(proto)

    with pytest.raises(RlxError):
        found()


@pytest.mark.parametrize("data", [b"", b"\x00", b"onnx", bytes(range(256)), b"\x0a\xff\xff\xff\xff\x0f"])
def test_bytes_that_are_no_model_are_refused(tmp_path: Any, data: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)

    with pytest.raises(FormatError, match=r"m\.onnx"):
        load(path)


def test_a_size_of_minus_one_is_symbolic() -> None:
    f = load(model([node("Neg", ["x"], ["y"])], ["x: f32[-1, 3]"], ["y: f32[-1, 3]"]))
    for rows in (2, 5):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_array_equal(np.asarray(f(x)), -x)
