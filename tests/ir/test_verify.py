"""The verifier: every kind of fault is found, all at once, and nothing is raised."""

import numpy as np
import pytest
from attrs import evolve

from rlx_core.errors import VerifyError
from rlx_core.ir.dims import SizeGuard, symbol
from rlx_core.ir.graph import Builder, Constant, Graph, Input, Node, Value, building, literal
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import spec
from rlx_core.ir.verify import IrStage, check, verify
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add
from rlx_core.ops.structural import Sum, sum_axes
from rlx_core.testing.cases import programs


def messages(graph, stage=IrStage.MIR):
    return [repr(fault) for fault in verify(graph, stage)]


def only(graph, stage=IrStage.MIR):
    (found,) = messages(graph, stage)
    return found


def chain():
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    with building(b):
        y = exp(x)
        z = add(y, x)
    return b.finish([z])


def replaced(graph, index, **changes):
    """The graph with one node changed in place, as a faulty pass would leave it."""
    node = graph.nodes[index]
    fields = {"op": node.op, "operands": node.operands, "types": node.types, "owner": node.owner, "index": node.index}
    made = Node(**{**fields, **changes})
    object.__setattr__(made, "results", tuple(Value(made, i) for i in range(len(made.types))))
    nodes = [made if i == index else n for i, n in enumerate(graph.nodes)]
    moved = dict(zip(node.results, made.results, strict=False))
    fixed = []
    for n in nodes:
        operands = tuple(v if v is None else moved.get(v, v) for v in n.operands)
        same = all(a is b for a, b in zip(operands, n.operands, strict=True))
        if not same:
            object.__setattr__(n, "operands", operands)
        fixed.append(n)
    return Graph(graph.name, tuple(fixed), tuple(moved.get(v, v) for v in graph.outputs), graph.guards)


def test_good_graphs_have_no_faults(rich, hir, ops):
    assert messages(rich) == []
    assert messages(hir, IrStage.HIR) == []
    for program in programs(tuple(op for name, op in ops.items() if name.startswith("rlx."))):
        assert messages(program.graph, IrStage.HIR) == [], str(program.case)


def test_a_wrong_declared_type_is_found():
    assert (
        "declared type is f32[3], the inferred one f32[2]" in messages(replaced(chain(), 1, types=(spec("f32[3]"),)))[0]
    )


def test_an_op_that_was_right_once_is_looked_at_again_on_other_types_only():
    """Passes copy ops from graph to graph; what is known of one holds for the types it was found right on, at its stage."""
    asked = []

    @define_op(domain="acme")
    class Watched(Op):
        def infer(self, x):
            asked.append(x)
            return x

    def graph(op, type, declared=None):
        b = Builder()
        x = b.input("x", spec(type))
        return b.finish(b.emit(op, (x,), types=(spec(declared or type),)))

    op = Watched()
    assert messages(graph(op, "f32[2]")) == messages(graph(op, "f32[2]")) == []
    assert asked == [spec("f32[2]")]
    assert messages(graph(op, "f32[3]")) == []
    assert asked == [spec("f32[2]"), spec("f32[3]")]
    for _ in range(2):
        assert "declared type is f32[4], the inferred one f32[2]" in only(graph(op, "f32[2]", "f32[4]"))
    assert len(asked) == 2, (
        "an op is asked once for each of its operands' types, and declared types are compared each time"
    )


def test_rank_zero_and_one_element_are_different_types():
    b = Builder()
    graph = replaced(b.finish([sum_axes(b.input("x", spec("f32[2]")), axes=(0,))]), 1, types=(spec("f32[1]"),))
    assert "declared type is f32[1], the inferred one f32[]" in only(graph)


def test_a_wrong_dtype_is_found():
    assert "f64[2]" in messages(replaced(chain(), 2, types=(spec("f64[2]"),)))[0]


def test_too_many_results_are_found():
    found = messages(replaced(chain(), 2, types=(spec("f32[2]"),) * 2))
    assert "declares 2 results, and 1 are inferred" in found[0]


def test_a_wrong_number_of_operands_is_found():
    graph = chain()
    assert "takes 1 operand (x), not 2" in messages(replaced(graph, 1, operands=(graph.nodes[0].result,) * 2))[0]


def forged(op, **attributes):
    """The op with attributes that its class would refuse."""
    op = evolve(op)
    vars(op).update(attributes)
    return op


def test_an_attribute_of_another_kind_is_found():
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    graph = b.finish([sum_axes(x, axes=(0,))])
    bad = replaced(graph, 1, op=forged(Sum(axes=(0,)), axes=(0.5,)))
    assert "attribute axes must be a sequence, each item an integer, not (0.5,) (tuple)" in only(bad)


def test_a_constant_without_data_is_found_and_not_raised():
    graph = replaced(chain(), 1, op=forged(Constant(literal(np.ones(2))), value=3), operands=())
    assert "attribute value must be a Literal" in messages(graph)[0]


def test_a_use_before_its_definition_is_found():
    graph = chain()
    swapped = evolve(graph, nodes=(graph.nodes[0], graph.nodes[2], graph.nodes[1]))
    found = messages(swapped)
    assert any("used before it is computed" in m for m in found)
    assert any("its number is 2, and it stands at 1" in m for m in found)


def test_a_value_of_another_graph_is_found():
    graph, other = chain(), chain()
    found = messages(replaced(graph, 1, operands=(other.nodes[0].result,)))
    assert "operand x (%x) belongs to another graph" in found[0]
    assert "output 0 (%2) belongs to another graph" in only(evolve(chain(), outputs=other.outputs))


def test_a_result_that_does_not_exist_is_found():
    graph = chain()
    assert "is result 3 of a node with 1" in only(evolve(graph, outputs=(Value(graph.nodes[1], 3),)))


def test_two_leaves_of_one_name_are_found():
    b = Builder()
    b.input("x", spec("f32[2]"))
    b.emit(Input("x", spec("f32[2]")), ())
    assert all("2 inputs or params are called 'x'" in m for m in messages(b.finish([])))


def test_a_guard_over_an_unknown_symbol_is_found():
    graph = evolve(chain(), guards=(SizeGuard("==", symbol("nowhere"), 4),))
    assert "guard nowhere == 4 is over nowhere, unknown here" in only(graph)


def test_a_guard_over_numbers_is_found():
    assert "is decided when it is made" in only(evolve(chain(), guards=(SizeGuard("==", 4, 4),)))


def test_blocks_belong_to_hir(hir):
    assert messages(hir, IrStage.HIR) == []
    assert sum("lower the module first" in m for m in messages(hir, IrStage.MIR)) == 3


def test_faults_of_nested_graphs_are_found_with_their_place(make_everything):
    body = replaced(chain(), 1, types=(spec("f32[3]"),))
    assert any(m.startswith("%1.body %1 = rlx.exp: the declared type") for m in messages(make_everything(body=body)))


def test_a_nested_graph_has_no_params(make_everything):
    b = Builder("body")
    b.param("w", spec("f32[2]"))
    assert "takes inputs, not params (w)" in only(make_everything(body=b.finish([])))


@define_op(domain="test")
class Clumsy(Op):
    def infer(self, x):
        return x.nothing_like_this


def test_an_inference_rule_that_breaks_is_a_fault_of_its_node():
    graph = replaced(chain(), 1, op=Clumsy())
    assert "its inference fails (AttributeError" in messages(graph)[0]


def test_all_faults_come_at_once_with_their_lines():
    graph = replaced(replaced(chain(), 1, types=(spec("f32[3]"),)), 0, types=(spec("f32[9]"),))
    faulty = evolve(graph, guards=(SizeGuard("==", symbol("nowhere"), 4),))
    with pytest.raises(VerifyError) as error:
        check(faulty, IrStage.MIR, after="my-pass")
    assert error.value.message == f"verify: MIR graph main after my-pass has {len(error.value.facts)} faults"
    assert len(error.value.facts) >= 3


def test_a_fault_shows_the_users_line():
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    y = exp(x)
    graph = b.finish([y])
    bad = replaced(graph, 1, types=(spec("f32[3]"),), origin=graph.nodes[1].origin)
    assert "test_verify.py" in only(bad)
    assert "y = exp(x)" in only(bad)
