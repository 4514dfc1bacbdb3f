"""Print and parse: the same graph back, for everything that can be in one."""

import pytest

from rlx_core.errors import FormatError
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.text import parse_graph, print_graph
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add
from rlx_core.testing.cases import programs


def test_a_graph_with_everything_parses_back(rich, ops):
    again = parse_graph(print_graph(rich), ops)
    assert again == rich
    assert again.name == rich.name
    assert [n.name for n in again.nodes] == [n.name for n in rich.nodes]
    assert print_graph(again) == print_graph(rich)


def test_origins_are_comments(rich, ops):
    assert parse_graph(print_graph(rich, origins=True), ops) == rich


def test_blocks_parse_back(hir, ops):
    assert parse_graph(print_graph(hir), ops) == hir


def test_every_attribute_kind_parses_back(attribute_rows, make_everything, ops):
    for row in attribute_rows:
        graph = make_everything(**row)
        assert parse_graph(print_graph(graph), ops) == graph, row


@pytest.mark.medium
def test_every_sample_of_every_standard_op_parses_back(ops):
    found = programs(tuple(op for name, op in ops.items() if name.startswith("rlx.")))
    assert len(found) > 100
    for program in found:
        graph = program.graph
        assert parse_graph(print_graph(graph), ops) == graph, str(program.case)


def test_the_text_is_what_a_reader_expects(ops):
    b = Builder()
    x, w = b.input("x", spec("f32[BATCH, 2]")), b.param("w", spec("f32[2]"))
    with building(b):
        h = add(x, w, name="h")
        y = exp(h * 0.5)
    assert print_graph(b.finish([y, h])) == (
        "graph main {\n"
        "  input %x : f32[BATCH, 2]\n"
        "  param %w : f32[2]\n"
        "  %h = add(%x, %w) : f32[BATCH, 2]\n"
        "  constant %3 = [0.5] : f32[]\n"
        "  %4 = mul(%h, %3) : f32[BATCH, 2]\n"
        "  %5 = exp(%4) : f32[BATCH, 2]\n"
        "  return %5, %h\n"
        "}\n"
    )


def test_names_that_collide_with_numbers_results_or_one_another_stay_apart(kinds, ops):
    b = Builder()
    inputs = [b.input(name, spec("f32[2]")) for name in ("3", "%", "pair.0", "", "a b", "return")]
    with building(b):
        pair = kinds["Split"]()(inputs[0], name="pair")
        twice = [exp(inputs[2], name="same"), exp(inputs[3], name="same"), exp(inputs[4], name="pair.1")]
    graph = b.finish([*inputs, *pair, *twice])
    again = parse_graph(print_graph(graph), ops)
    assert again == graph
    assert [n.name for n in again.nodes] == [n.name for n in graph.nodes]


def test_absent_operands_are_printed(kinds, ops):
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    graph = b.finish([kinds["Everything"]()(x, None)])
    assert parse_graph(print_graph(graph), ops) == graph


def test_a_missing_type_is_inferred(ops):
    graph = parse_graph("graph g { input %x : f32[2, 3]\n %1 = sum(%x, axes=(1,))\n return %1 }", ops)
    assert graph.output_types == (spec("f32[2]"),)


GOOD = """graph main {
  input %x : f32[2]
  %1 = sum(%x, axes=(0,), keep_dim=False) : f32[]
  constant %2 = [1, 2] : i8[2]
  return %1
}
"""


@pytest.mark.parametrize(
    ("old", "new", "place", "says"),
    [
        ("sum", "smu", "line 3, column 8", "rlx.smu"),
        ("axes", "axs", "line 3", "no attribute 'axs'"),
        ("(0,)", "?", "line 3, column 21", "expected a value"),
        ("(0,)", '"x"', "line 3", "attribute axes must be"),
        ("%x,", "%y,", "line 3, column 12", "%y is not defined"),
        (": f32[]", ": f33[]", "line 3", "f33"),
        (": f32[]", ": f64[]", "line 3, column 8", "the declared type is f64[], the inferred one f32[]"),
        (": f32[]", ": f32[1]", "line 3, column 8", "the declared type is f32[1], the inferred one f32[]"),
        (": f32[]", ": (f32[], f32[])", "line 3, column 8", "declares 2 results, and 1 are inferred"),
        (
            "sum(%x, axes=(0,), keep_dim=False)",
            "linear_block(%x)",
            "line 3, column 8",
            "takes 2 to 3 operands (x, w, b?), not 1",
        ),
        ("sum(%x, axes=(0,), keep_dim=False)", "exp(%x, %x)", "line 3, column 8", "takes 1 operand (x), not 2"),
        (": f32[]", ": f32[2^999]", "line 3", "not a size"),
        ("[1, 2]", "[1, 200]", "line 4", "not all elements of i8"),
        ("[1, 2]", "[1]", "line 4", "2 elements, not 1"),
        ("[1, 2] :", 'base64 "AA==" :', "line 4", "2 bytes, not 1"),
        ("return %1", "return %9", "line 5, column 10", "%9"),
        ("return", "retrun", "line 5, column 3", "expected a node"),
        ("}\n", "} more", "line 6, column 3", "expected the end"),
        ("}\n", "", "line 6, column 1", "expected `}`"),
        ("%1 =", "%x =", "line 4", "%x is defined twice"),
        ("  return", "  guard n < 2\n  return", "line 5", "a guard reads"),
    ],
)
def test_an_error_says_where_and_what(old, new, place, says, ops):
    parse_graph(GOOD, ops)
    with pytest.raises(FormatError) as error:
        parse_graph(GOOD.replace(old, new), ops)
    assert place in error.value.message
    assert says in error.value.message


def test_every_truncation_is_a_format_error(rich, ops):
    text = print_graph(rich).rstrip()
    for end in range(0, len(text), 7):
        with pytest.raises(FormatError):
            parse_graph(text[:end], ops)


def test_another_version_of_an_op_is_refused(ops):
    with pytest.raises(FormatError, match="version 2 of the op, and version 1"):
        parse_graph(GOOD.replace("sum(", "sum@2("), ops)
