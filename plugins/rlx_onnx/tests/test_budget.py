"""Small models that ask for unlimited work: refused by the name of the option, or compiled, as large models are."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_graphs import model

import rlx_core as rlx
from rlx_core.errors import BudgetError, OutOfMemoryError, RlxError
from rlx_core.system.budget import Budget, working
from rlx_onnx import load

node = helper.make_node
ONE = np.ones(1, np.float32)


@pytest.mark.parametrize("known", [True, False], ids=["of a constant", "of an input"])
def test_expand_to_2_to_34_is_left_to_the_program(known: bool) -> None:
    """64 GiB are never in memory: the sum takes each element as it is computed."""
    proto = model(
        [
            node("Expand", ["c" if known else "x", "size"], ["e"]),
            node("ReduceSum", ["e"], ["s"], keepdims=0),
            node("Add", ["s", "x"], ["y"]),
        ],
        ["x: f32[1]"],
        ["y: f32[1]"],
        {"size": np.int64([1 << 34]), "c": np.float32(1)},
    )
    assert load(proto).compile().report.lir.graph.output_types[0].size == 1


def doubled(times: int, tensor: np.ndarray, kind: str) -> onnx.ModelProto:
    names = ["c", *(f"d{n}" for n in range(times))]
    nodes = [node("Concat", [each, each], [after], axis=0) for each, after in itertools.pairwise(names)]
    nodes += [node("ReduceSum", [names[-1]], ["s"], keepdims=0), node("Add", ["s", "x"], ["y"])]
    return model(nodes, [f"x: {kind}[1]"], [f"y: {kind}[1]"], {"c": tensor})


def test_a_constant_that_is_doubled_is_refused_before_it_is_made() -> None:
    proto = doubled(40, np.ones(1, np.int64), "i64")
    with (
        working(Budget(folded=1 << 24), "loading"),
        pytest.raises(BudgetError, match=r"Concat.* makes constants") as caught,
    ):
        load(proto)
    assert "budget.folded" in str(caught.value)


@pytest.mark.slow
def test_a_constant_that_is_doubled_is_refused_by_default() -> None:
    with pytest.raises((BudgetError, OutOfMemoryError)):
        load(doubled(40, np.ones(1, np.int64), "i64"))


def test_a_weight_that_is_doubled_is_refused_when_it_is_compiled() -> None:
    """Tensors of floats are parameters, and what is made of them alone is computed once."""
    read = load(doubled(40, ONE, "f32"))
    with pytest.raises(BudgetError, match="computed of parameters alone") as caught:
        read.compile()
    assert "budget.parameters" in str(caught.value)


def counted(steps: int, state: str, changes: bool = False) -> onnx.ModelProto:
    """A loop whose state is a constant or an input; one that grows is written out."""
    body = helper.make_graph(
        [
            node("Identity", ["on"], ["goes_on"]),
            node("Concat", ["v", "v"], ["w"], axis=0) if changes else node("Add", ["v", "v"], ["w"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, None if changes else [1]),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, None if changes else [1]),
        ],
    )
    return model(
        [
            node("Loop", ["steps", "true", state], ["last"], body=body),
            node("ReduceSum", ["last"], ["s"], keepdims=0),
            node("Add", ["s", "x"], ["y"]),
        ],
        ["x: f32[1]"],
        ["y: f32[1]"],
        {"steps": np.int64(10**9), "true": np.bool_(True), "c": ONE}
        if steps == 10**9
        else {"steps": np.int64(steps), "true": np.bool_(True), "c": ONE},
    )


@pytest.mark.parametrize("state", ["c", "x"])
def test_a_loop_of_a_billion_steps_is_one_loop(state: str) -> None:
    """Nothing of it runs before the program does, which an interrupt ends."""
    assert load(counted(10**9, state))


def test_a_loop_whose_state_grows_is_bounded() -> None:
    """Every step has another type, so that each is a part of the program."""
    with pytest.raises(RlxError):
        load(counted(10**9, "x", changes=True))


@pytest.mark.medium
def test_loops_that_are_written_out_in_one_another_are_counted() -> None:
    """Steps whose conditions are known are evaluated one by one while the model is read."""

    def body(inner: list, row: str) -> onnx.GraphProto:
        return helper.make_graph(
            [node("Less", [f"i_{row}", "count"], [f"on_{row}"]), *inner],
            f"body_{row}",
            [
                helper.make_tensor_value_info(f"i_{row}", TensorProto.INT64, []),
                helper.make_tensor_value_info(f"was_{row}", TensorProto.BOOL, []),
            ],
            [
                helper.make_tensor_value_info(f"on_{row}", TensorProto.BOOL, []),
                helper.make_tensor_value_info(row, TensorProto.INT64, None),
            ],
        )

    row = body([node("Add", ["count", "count"], ["row"])], "row")
    outer = body([node("Loop", ["", "true"], ["rows"], body=row)], "rows")
    proto = model(
        [
            node("Loop", ["", "true"], ["all"], body=outer),
            node("ReduceSum", ["all"], ["s"], keepdims=0),
            node("Add", ["s", "x"], ["y"]),
        ],
        ["x: i64[1]"],
        ["y: i64[1]"],
        {"count": np.int64(9_000), "true": np.bool_(True)},
    )
    for budget in (Budget(nodes=5_000), Budget(seconds=0.5)):
        with working(budget, "loading"), pytest.raises(BudgetError):
            load(proto)


def functions(count: int) -> onnx.ModelProto:
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("acme", 1)]
    made = [helper.make_function("acme", "F0", ["v"], ["w"], [node("Abs", ["v"], ["w"])], sets)]
    for n in range(1, count + 1):
        calls = [node(f"F{n - 1}", ["v"], ["u"], domain="acme"), node(f"F{n - 1}", ["u"], ["w"], domain="acme")]
        made.append(helper.make_function("acme", f"F{n}", ["v"], ["w"], calls, sets))
    return model(
        [node(f"F{count}", ["x"], ["y"], domain="acme")],
        ["x: f32[2]"],
        ["y: f32[2]"],
        domains={"acme": 1},
        functions=made,
    )


def test_functions_that_call_each_other_twice_are_counted() -> None:
    with working(Budget(nodes=32_000), "loading"), pytest.raises(BudgetError, match="more than 32,000 nodes") as caught:
        load(functions(15))
    assert "budget.nodes" in str(caught.value)


@pytest.mark.slow
def test_fifteen_functions_that_call_each_other_twice_are_compiled() -> None:
    compiled = load(functions(15)).compile()
    np.testing.assert_array_equal(compiled(np.float32([-1, 2])), np.float32([1, 2]))


@pytest.mark.slow
def test_fifty_thousand_nodes_in_a_row_are_compiled() -> None:
    names = ["x", *(f"a{n}" for n in range(49_999)), "y"]
    proto = model([node("Abs", [a], [b]) for a, b in itertools.pairwise(names)], ["x: f32[2]"], ["y: f32[2]"])
    np.testing.assert_array_equal(load(proto).compile()(np.float32([-1, 2])), np.float32([1, 2]))


def test_bytes_of_files_beside_the_model_are_counted(tmp_path: Path) -> None:
    proto = model(
        [node("Add", ["x", "w"], ["y"])], ["x: f32[2000]"], ["y: f32[2000]"], {"w": np.ones(2000, np.float32)}
    )
    path = tmp_path / "m.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    nbytes = path.stat().st_size
    with pytest.raises(BudgetError, match=r"w\.bin: the files have more than"):
        rlx.load(path, config={"budget.read": nbytes + 7_999})
    assert rlx.load(path, config={"budget.read": nbytes + 8_000})
