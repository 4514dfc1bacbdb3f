"""Building graphs: structure, names, constants, the operators of values, and what is refused with the user's line."""

import numpy as np
import pytest

from rlx_core.errors import FormatError, ShapeError, TraceError, UnknownNameError, WrongInputCountError
from rlx_core.ir.apply import apply
from rlx_core.ir.bind import bind
from rlx_core.ir.dims import DimBinding, symbol
from rlx_core.ir.dtypes import bool_
from rlx_core.ir.graph import MOST_NESTED, Builder, Value, building, infer, leaf_name, literal
from rlx_core.ir.parse import parse_graph
from rlx_core.ir.provenance import Origin, originating
from rlx_core.ir.serialize import load, save
from rlx_core.ir.text import print_graph
from rlx_core.ir.types import spec
from rlx_core.ir.verify import verify
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add
from rlx_core.ops.call import Call
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import dim_value
from rlx_core.ops.structural import Sum, reshape


def build(scale=2.0, name="w"):
    b = Builder()
    x, w = b.input("x", spec("f32[2, 3]")), b.param(name, spec("f32[3]"))
    with building(b):
        y = exp(add(x, w)) * scale
    return b.finish([y])


def test_equality_is_structural():
    assert build() == build()
    assert hash(build()) == hash(build())
    assert build() != build(scale=3.0)
    assert build() != build(name="v")
    assert build(scale=0.0) != build(scale=-0.0)


def test_operands_come_before_their_users(rich):
    for node in rich.nodes:
        assert all(v.node.index < node.index for v in node.present())


def test_uses_count_edges():
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    graph = b.finish([x * x, x])
    assert [n.op.name for n in graph.uses[x]] == ["rlx.mul", "rlx.mul"]


def test_outputs_may_repeat_and_may_be_inputs():
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    assert b.finish([x, x]).output_types == (spec("f32[2]"),) * 2


def test_values_are_found_by_name_and_a_misspelt_one_has_a_hint():
    graph = build(name="weight")
    assert leaf_name(graph.find("weight")) == "weight"
    with pytest.raises(UnknownNameError) as error:
        graph.find("wieght")
    assert error.value.hint == "did you mean `weight`?"


def test_two_inputs_of_one_name_are_refused():
    b = Builder()
    b.input("x", spec("f32[2]"))
    with pytest.raises(FormatError, match="two inputs or params called 'x'"):
        b.param("x", spec("f32[2]"))


def test_small_equal_constants_are_one_node_and_zeros_keep_their_sign():
    b = Builder()
    made = [b.constant(v) for v in (np.float32(0.0), np.float32(-0.0), np.float32(0.0), np.float64(0.0))]
    assert made[0] is made[2]
    assert len({id(v) for v in made}) == 3


def test_literals_compare_by_content_and_are_copied():
    data = np.array([1.0, np.nan], np.float32)
    value = literal(data)
    assert value == literal(data.astype(">f4"))
    assert value != literal(data, spec("f64[]").dtype)
    data[0] = 9
    assert value.array[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        value.array[0] = 2


def test_literals_of_one_read_only_array_are_one_and_share_its_memory():
    data = np.arange(100, dtype=np.float32)
    data.flags.writeable = False
    value = literal(data)
    assert value is literal(data)
    assert value.array is data
    view = data[:50]
    assert not np.shares_memory(literal(view).array, data), "a view may be of memory that can be written to"
    assert literal(data, spec("f64[]").dtype).dtype.name == "f64"


def test_promotion_is_visible_as_casts():
    b = Builder()
    x, i = b.input("x", spec("f16[2]")), b.input("i", spec("i64[2]"))
    graph = b.finish([x + i])
    assert [n.op.name for n in graph.nodes if not n.is_leaf] == ["rlx.cast", "rlx.cast", "rlx.add"]
    assert graph.output_types == (spec("f64[2]"),)


def test_scalars_are_weak():
    b = Builder()
    x = b.input("x", spec("f16[2]"))
    assert (x * 2.0).dtype.name == "f16"
    assert (x == 1).dtype is bool_


def test_a_wrong_shape_names_both_operands_and_the_users_line():
    b = Builder()
    x, y = b.input("x", spec("f32[2]")), b.input("y", spec("f32[3]"))
    with pytest.raises(ShapeError) as error:
        x + y  # this very line
    text = str(error.value)
    assert error.value.message.startswith("add: ")
    assert "f32[2]" in text
    assert "f32[3]" in text
    assert "x + y  # this very line" in text


def test_a_wrong_number_of_operands_is_typed():
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    with pytest.raises(WrongInputCountError, match=r"takes 1 operand \(x\), not 2"):
        apply(Sum(axes=(0,)), (x, x))


@pytest.mark.parametrize(
    "ask", [bool, float, int, np.asarray, lambda x: [0][x]], ids=["bool", "float", "int", "array", "index"]
)
def test_a_value_has_no_elements(ask):
    x = Builder().input("x", spec("f32[]"))
    with pytest.raises(TraceError, match="only known when the program runs"):
        ask(x)


def test_values_of_another_graph_are_refused_or_captured():
    outside = Builder("outer").input("x", spec("f32[2]"))
    inner = Builder("inner")
    with pytest.raises(TraceError, match="a value of graph outer cannot be used here"), building(inner):
        exp(outside)
    capturing = Builder("inner", capturing=True)
    with building(capturing):
        y = exp(outside)
    assert list(capturing.captures) == [outside]
    assert capturing.finish([y]).input_types == {"captured0": spec("f32[2]")}


def test_a_finished_builder_takes_no_more_nodes():
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    b.finish([x])
    with pytest.raises(TraceError, match="it is finished"):
        exp(x)


def test_values_are_told_apart_by_identity_and_are_keys():
    b = Builder()
    x, y = b.input("x", spec("f32[2]")), b.input("y", spec("f32[2]"))
    assert {x: 1, y: 2}[y] == 2
    assert isinstance(x == y, Value)


def test_nodes_take_their_origin_from_the_enclosing_block():
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    with originating(Origin(block="outer", label="l")), originating(Origin(block="inner")):
        y = exp(x)
    assert (y.node.origin.block, y.node.origin.label) == ("inner", "l")
    assert "y = exp(x)" in repr(y.node.origin.source)


def test_inference_of_an_op_without_a_rule_is_read_off_its_decomposition(kinds):
    scale = kinds["Scale"]()
    assert infer(scale, [spec("f32[2, 3]"), spec("f32[3]")]) == (spec("f32[2, 3]"),)


def test_arrays_outside_a_graph_are_evaluated_at_once():
    np.testing.assert_array_equal(add(np.float32([1, 2]), 1), np.float32([2, 3]))
    assert add(np.float32([1]), 1).dtype == np.float32


def test_guards_come_with_their_node_and_line():
    b = Builder()
    x = b.input("x", spec("f32[n]"))
    graph = b.finish([reshape(x, (4, -1))])
    (guard,) = graph.guards
    assert guard.node == "%1 = rlx.reshape"
    assert "reshape(x, (4, -1))" in repr(guard.source)


def test_cast_to_the_same_dtype_is_a_node_of_the_same_type():
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    assert cast(x, to=x.dtype).type == x.type


def wrapped(body=None):
    """A graph that calls `body`, or one that calls nothing."""
    b = Builder("level")
    x = b.input("x", spec("f32[3]"))
    with building(b):
        y = exp(x) if body is None else Call(body)(x) * 2
    return b.finish([y])


def test_graphs_nest_to_a_stated_depth_and_are_read_back_from_it(ops):
    graph = wrapped()
    for _ in range(MOST_NESTED - 1):
        graph = wrapped(graph)
    assert graph.depth == MOST_NESTED
    assert verify(graph, "hir") == []
    assert parse_graph(print_graph(graph), ops) == graph
    assert load(save(graph), ops) == graph

    with pytest.raises(TraceError, match=f"call: graphs are nested more than {MOST_NESTED} deep"):
        wrapped(graph)


def test_the_symbols_of_a_graph_are_those_of_types_attributes_and_nested_graphs():
    inner = Builder("inner")
    with building(inner):
        size = cast(dim_value(size=symbol("m") + 1), "f32")
        body = inner.finish([inner.input("x", spec("f32[]")) * size])
    outer = Builder("outer")
    with building(outer):
        x = outer.input("x", spec("f32[k]"))
        total = Sum((0,))(x) + cast(dim_value(size=symbol("n")), "f32")
        graph = outer.finish([Call(body)(total)])

    assert {s.name for s in body.symbols} == {"m"}
    assert {s.name for s in graph.symbols} == {"k", "n", "m"}
    assert not bind(graph, DimBinding.of(k=2, n=3, m=4))[0].symbols
