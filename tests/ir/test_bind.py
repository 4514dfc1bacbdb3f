"""Binding: guards first, every size everywhere, nothing repaired; and sizes read off arrays."""

import numpy as np
import pytest
from attrs import frozen

from rlx_core.errors import BindingError, GuardError, MissingInputError, RlxError, ShapeError, UnknownNameError
from rlx_core.ir.bind import bind, infer_binding, infer_binding_from_counts
from rlx_core.ir.dims import BATCH, SEQ, DimBinding, batch_seq, symbol
from rlx_core.ir.graph import Builder, Graph, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import Shape, TensorType, spec
from rlx_core.ir.verify import IrStage, verify
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add
from rlx_core.ops.structural import expand, reshape, sum_axes


def program(batch, seq):
    b = Builder()
    x = b.input("x", TensorType(spec("f32[]").dtype, (batch, seq, 4)))
    w = b.param("w", spec("f32[4]"))
    with building(b):
        h = add(x, w, name="h")
        flat = reshape(h, (batch * seq, 4))
        wide = expand(sum_axes(flat, axes=(0,), keep_dim=True), (batch, 4))
    return b.finish([flat, wide])


def test_a_bound_template_equals_the_program_built_with_those_sizes():
    bound, values = bind(program(BATCH, SEQ), batch_seq(2, 3))
    assert bound == program(2, 3)
    assert verify(bound, IrStage.MIR) == []
    assert bound.find("h") is values[program_value(values, "h")]


def program_value(values, name):
    return next(v for v in values if v.node.name == name)


def test_a_bound_template_computes_the_same():
    bound, _ = bind(program(BATCH, SEQ), batch_seq(2, 3))
    fed = {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4)}
    weights = {"w": np.ones(4, np.float32)}
    for a, b in zip(interpret(bound, fed, weights), interpret(program(2, 3), fed, weights), strict=True):
        np.testing.assert_array_equal(a, b)


def test_symbols_that_are_not_bound_stay():
    bound, _ = bind(program(BATCH, SEQ), DimBinding.of(BATCH=2))
    assert bound.output_types == (spec("f32[2*SEQ, 4]"), spec("f32[2, 4]"))
    assert bind(bound, DimBinding.of(SEQ=3))[0] == program(2, 3)


@frozen
class Geometry:
    size: object
    sizes: tuple


@define_op(domain="test")
class Sized(Op):
    geometry: Geometry
    body: Graph
    target: Shape

    def infer(self, x):
        return x.with_shape(self.target)


def test_sizes_in_records_tuples_and_nested_graphs_are_bound():
    def build(n):
        inner = Builder("body")
        body = inner.finish([exp(inner.input("a", TensorType(spec("f32[]").dtype, (n,))))])
        b = Builder()
        x = b.input("x", spec("f32[2]"))
        return b.finish([Sized(Geometry(n * 2, (1, (n + 1,))), body, (n,))(x)])

    assert bind(build(symbol("n")), DimBinding.of(n=5))[0] == build(5)


def guarded():
    b = Builder()
    x, y = b.input("x", spec("f32[n]")), b.input("y", spec("f32[m]"))
    z = b.input("z", spec("f32[k]"))
    with building(b):
        total = add(x, y)
        rows = reshape(z, (4, -1))
    return b.finish([total, rows])


@pytest.mark.parametrize(
    ("sizes", "says"),
    [({"n": 3, "m": 4}, "n == m does not hold (3 and 4)"), ({"k": 6}, "k % 4 == 0 does not hold (4 and 6)")],
)
def test_a_guard_that_fails_names_itself_the_node_the_line_and_the_sizes(sizes, says):
    with pytest.raises(GuardError) as error:
        bind(guarded(), DimBinding.of(**sizes))
    text = str(error.value)
    assert says in text
    assert "rlx." in text
    assert "test_bind.py" in text
    assert str(DimBinding.of(**sizes)) in text


def test_guards_that_hold_disappear_and_open_ones_stay():
    bound, _ = bind(guarded(), DimBinding.of(n=3, m=3))
    assert [str(g) for g in bound.guards] == ["k % 4 == 0"]
    assert bind(bound, DimBinding.of(k=8))[0].guards == ()


@define_op(domain="test")
class Window(Op):
    """A slice that must fit; the check is a plain comparison, as an op without guards would have it."""

    start: int

    def infer(self, x):
        if isinstance(x.shape[0], int) and self.start + 2 > x.shape[0]:
            raise ShapeError(f"start {self.start} + 2 leaves the axis of {x.shape[0]}")
        return x.with_shape((2,))


def test_a_window_that_leaves_its_axis_is_an_error_and_never_moves():
    b = Builder()
    graph = b.finish([Window(3)(b.input("x", spec("f32[n]")))])
    assert bind(graph, DimBinding.of(n=5))[0].output_types == (spec("f32[2]"),)
    with pytest.raises(ShapeError, match="leaves the axis of 4") as error:
        bind(graph, DimBinding.of(n=4))
    assert "{n=4}" in str(error.value)


@define_op(domain="test")
class Fickle(Op):
    """Its type depends on whether the size is known, which no honest op's does."""

    def infer(self, x):
        return x if isinstance(x.shape[0], int) else x.with_shape((x.shape[0] + 1,))


def test_a_type_that_changes_when_bound_is_an_error_with_both_types():
    b = Builder()
    graph = b.finish([Fickle()(b.input("x", spec("f32[n]")))])
    with pytest.raises(ShapeError, match=r"declared f32\[4\], and is f32\[3\] once bound"):
        bind(graph, DimBinding.of(n=3))


def test_bindings_are_keys():
    assert {batch_seq(2, 3): 1}[DimBinding.of(SEQ=3, ROWS=6, BATCH=2)] == 1


# ------------------------------------------------------------------------------------------ inference


def arrays(**shapes):
    return {name: np.empty(shape, np.float32) for name, shape in shapes.items()}


def types(**specs):
    return {name: spec(text) for name, text in specs.items()}


@pytest.mark.parametrize(
    ("declared", "shapes", "expected"),
    [
        ({"x": "f32[BATCH, SEQ]"}, {"x": (2, 3)}, {"BATCH": 2, "SEQ": 3}),
        ({"x": "f32[2*n]", "y": "f32[n]"}, {"x": (6,), "y": (3,)}, {"n": 3}),
        ({"x": "f32[n + m, n, m]"}, {"x": (5, 2, 3)}, {"n": 2, "m": 3}),
        ({"x": "f32[4]"}, {"x": (4,)}, {}),
        ({"x": "f32[n]"}, {"x": (0,)}, {"n": 0}),
    ],
)
def test_shapes_determine_sizes(declared, shapes, expected):
    assert infer_binding(types(**declared), arrays(**shapes)) == DimBinding.of(**expected)


@pytest.mark.parametrize(
    ("declared", "shapes", "error", "says"),
    [
        ({"x": "f32[n, 2]"}, {"x": (3,)}, BindingError, "x must have 2 axes, not 1"),
        ({"x": "f32[n]", "y": "f32[n]"}, {"x": (3,), "y": (4,)}, BindingError, "n is 3 in x axis 0 and 4 in y axis 0"),
        ({"x": "f32[n, 2*n]"}, {"x": (3, 5)}, BindingError, r"x axis 1 must be 2\*n = 6, not 5"),
        ({"x": "f32[3]"}, {"x": (4,)}, BindingError, "x axis 0 must be 3, not 4"),
        ({"x": "f32[n + m]"}, {"x": (4,)}, BindingError, "does not determine m, n"),
        ({"x": "f32[n]"}, {}, MissingInputError, "no array for x"),
        ({"x": "f32[n]"}, {"x": (1,), "xs": (1,)}, UnknownNameError, "no input 'xs'"),
    ],
)
def test_shapes_that_do_not_fit_are_errors_with_both_numbers(declared, shapes, error, says):
    with pytest.raises(error, match=says):
        infer_binding(types(**declared), arrays(**shapes))


@pytest.mark.parametrize(
    ("declared", "counts", "expected"),
    [
        ({"x": "f32[BATCH, 64]"}, {"x": 128}, {"BATCH": 2}),
        ({"x": "f32[n, m]", "y": "f32[m, 2]"}, {"x": 12, "y": 6}, {"n": 4, "m": 3}),
        ({"x": "f32[4]"}, {"x": 4}, {}),
    ],
)
def test_counts_determine_one_size_an_input(declared, counts, expected):
    assert infer_binding_from_counts(types(**declared), counts) == DimBinding.of(**expected)
    flat = {name: np.empty(count) for name, count in counts.items()}
    assert infer_binding(types(**declared), flat, flat=True) == DimBinding.of(**expected)


@pytest.mark.parametrize(
    ("declared", "counts", "says"),
    [
        ({"x": "f32[n, 3]"}, {"x": 10}, "10 elements, not a multiple of 3"),
        ({"x": "f32[n, 0]"}, {"x": 0}, "multiply to 0"),
        ({"x": "f32[n]", "y": "f32[n]"}, {"x": 3, "y": 4}, "3 elements, not 4"),
        ({"x": "f32[n, m]"}, {"x": 6}, "more than one of m, n"),
        ({"x": "f32[n, n]"}, {"x": 9}, "do not determine n and n"),
        ({"x": "f32[4]"}, {"x": 5}, "4 elements, not 5"),
    ],
)
def test_counts_that_do_not_fit_are_errors(declared, counts, says):
    with pytest.raises(BindingError, match=says):
        infer_binding_from_counts(types(**declared), counts)


def test_what_cannot_be_determined_asks_for_an_explicit_binding():
    with pytest.raises(RlxError) as error:
        infer_binding_from_counts(types(x="f32[n, m]"), {"x": 6})
    assert "explicit binding" in error.value.hint


def test_equal_nodes_of_a_template_are_inferred_once_for_each_binding():
    asked = []

    @define_op
    class Watched(Op):
        def infer(self, x: TensorType) -> TensorType:
            asked.append(x)
            return x

    builder = Builder()
    x = builder.input("x", spec("f32[SEQ, 4]"))
    with building(builder):
        for _ in range(5):
            x = Watched()(x)
    graph = builder.finish([x])
    asked.clear()

    for size in (3, 7):
        bound, _ = bind(graph, DimBinding.of(SEQ=size))
        assert [n.types for n in bound.nodes] == [(spec(f"f32[{size}, 4]"),)] * 6
    assert asked == [spec("f32[3, 4]"), spec("f32[7, 4]")]
