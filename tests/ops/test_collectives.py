"""Collectives over named axes: values, derivatives and dtypes next to the same program with an explicit axis, in every mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import AxisNameError, DtypeError, ShapeError
from rlx_core.ir.graph import Builder, building, ops_inside
from rlx_core.ir.mesh import OverNamedAxes
from rlx_core.ops.collectives import AxisIndex
from rlx_core.passes.fold_constants import fold
from rlx_core.pipeline.compile import compile_graph
from rlx_core.runtime.executable import Executable
from rlx_core.testing.special_points import same_bits
from rlx_core.transforms.batch import vmap_graph

DTYPES = ["bool", "i8", "u8", "i32", "u64", "f16", "bf16", "f32", "f64", "c64", "c128"]
NUMPY = {
    "psum": lambda x, axis: np.sum(x, axis, dtype=np.int64 if x.dtype == bool else x.dtype),
    "pmean": lambda x, axis: np.mean(x, axis),
    "pmax": lambda x, axis: np.max(x, axis),
    "pmin": lambda x, axis: np.min(x, axis),
}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def over(function: Callable[..., Any], name: str = "i", **settings: Any) -> Callable[..., Any]:
    return rlx.vmap(function, axis_name=name, **settings)


def drawn(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    found = rlx.spec(f"{dtype}[]").dtype
    if found.is_complex:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(found.numpy)
    values = rng.integers(0, 2, shape) if dtype == "bool" else rng.uniform(0, 100, shape)
    return np.asarray(values).astype(found.numpy)


class TestValues:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("name", NUMPY)
    def test_a_collective_is_numpys_reduction_of_the_axis_in_every_dtype(self, name, dtype, rng):
        x = drawn(dtype, (5, 3), rng)
        collective = getattr(rlx, name)
        if dtype.startswith("c") and name in ("pmax", "pmin"):
            with pytest.raises(DtypeError, match="real"):
                over(lambda a: collective(a, "i"))(x)
            return
        result = np.asarray(over(lambda a: collective(a, "i"), out_axes=None)(x))
        with np.errstate(over="ignore"):
            wide = x.astype(np.float32) if dtype in ("f16", "bf16") else x
            expected = NUMPY[name](wide, 0)
        integers = name == "pmean" and dtype in ("bool", "i8", "u8", "i32")
        assert result.dtype == (np.float32 if integers else x.dtype if dtype in ("f16", "bf16") else expected.dtype)
        exact = name in ("pmax", "pmin") or result.dtype.kind in "iub"
        eps = 0 if exact else float(ml_dtypes.finfo(result.dtype).eps)
        np.testing.assert_allclose(result.astype(expected.dtype), expected, rtol=4 * eps, atol=4 * eps)

    def test_a_narrow_sum_is_rounded_once_and_integers_wrap(self):
        ones = np.ones(5000, np.float16)
        assert float(over(lambda a: rlx.psum(a, "i"), out_axes=None)(ones)) == 5000
        assert float(over(lambda _: rlx.psum(np.float16(1), "i"), out_axes=None)(ones)) == 5000
        assert int(over(lambda a: rlx.psum(a, "i"), out_axes=None)(np.full(3, 100, np.uint8))) == 300 % 256
        assert int(over(lambda _: rlx.psum(np.uint8(100), "i"), out_axes=None)(ones[:300])) == 30000 % 256

    def test_what_no_example_changes_is_summed_as_often_as_there_are_examples(self):
        """A value that the batching does not reach is one operand of each member."""
        weight, x = np.float32([1, 2]), np.zeros((3, 2), np.float32)
        assert_all(over(lambda _: rlx.psum(weight, "i"))(x), np.float32([[3, 6]] * 3))
        assert_all(rlx.jit(lambda w: over(lambda _: rlx.psum(w, "i"), out_axes=None)(x))(weight), np.float32([3, 6]))
        assert_all(over(lambda _: rlx.pmean(weight, "i"), out_axes=None)(x), weight)
        assert_all(over(lambda _: rlx.pmax(weight, "i"), out_axes=None)(x), weight)
        assert_all(over(lambda w: rlx.psum(w, "i"), in_axes=None, axis_size=4)(weight), np.float32([[4, 8]] * 4))

    def test_a_python_number_is_multiplied_by_the_size(self):
        found: list[Any] = []

        def function(x):
            found.extend([rlx.psum(1, "i"), rlx.psum(2.5, "i"), rlx.psum(True, "i"), rlx.axis_size("i")])
            return x

        over(function)(np.zeros(4))
        assert found == [4, 10.0, 4, 4]
        assert list(map(type, found)) == [int, float, int, int]

    def test_leaves_of_a_pytree_are_reduced_each(self, rng):
        tree = {"a": rng.normal(size=(3, 2)), "b": (rng.integers(0, 9, 3), None)}
        found = over(lambda t: rlx.psum(t, "i"), out_axes=None)(tree)
        np.testing.assert_allclose(found["a"], tree["a"].sum(0))
        assert int(found["b"][0]) == tree["b"][0].sum()
        assert found["b"][1] is None

    def test_special_values_propagate_as_in_the_reductions(self):
        x = np.float32([[np.nan, np.inf, -np.inf, -0.0], [1, -np.inf, -np.inf, 0.0]])
        for name, reduction in (("psum", rlx.sum), ("pmean", rlx.mean), ("pmax", rlx.max), ("pmin", rlx.min)):
            collective = getattr(rlx, name)
            found = over(lambda a, f=collective: f(a, "i"), out_axes=None)(x)
            assert same_bits(np.asarray(found), np.asarray(reduction(x, axis=0))).all(), name

    def test_an_axis_without_examples_has_sums_of_zero_and_no_extremes(self):
        x = np.zeros((0, 2), np.float32)
        assert_all(over(lambda a: rlx.psum(a, "i"), out_axes=None)(x), np.zeros(2, np.float32))
        with pytest.raises(ShapeError, match="0 elements"):
            over(lambda a: rlx.pmax(a, "i"))(x)


class TestSeveralAxes:
    def test_names_in_a_tuple_are_reduced_together_and_alone(self, rng):
        x = rng.normal(size=(2, 3, 4))

        def function(a):
            return rlx.psum(a, ("i", "j")), rlx.psum(a, "i"), rlx.psum(a, "j"), rlx.pmax(a, ["j", "i"]), rlx.psum(a, ())

        both, outer, inner, largest, itself = over(over(function, "j"))(x)
        shape = x.shape
        np.testing.assert_allclose(both, np.broadcast_to(x.sum((0, 1)), shape))
        np.testing.assert_allclose(outer, np.broadcast_to(x.sum(0), shape))
        np.testing.assert_allclose(inner, np.broadcast_to(x.sum(1)[:, None], shape))
        np.testing.assert_array_equal(largest, np.broadcast_to(x.max((0, 1)), shape))
        np.testing.assert_array_equal(itself, x)

    def test_positions_are_in_row_major_order_of_the_names(self):
        x = np.zeros((2, 3))
        found = over(
            over(lambda _: (rlx.axis_index("i"), rlx.axis_index(("i", "j")), rlx.axis_index(("j", "i"))), "j")
        )(x)
        assert_all(found[0], np.array([[0] * 3, [1] * 3]))
        assert_all(found[1], np.arange(6).reshape(2, 3))
        assert_all(found[2], np.arange(6).reshape(3, 2).T)

    def test_an_inner_axis_without_a_name_does_not_hide_the_outer_one(self, rng):
        x = rng.normal(size=(2, 3))
        found = over(rlx.vmap(lambda a: rlx.psum(a, "i")), out_axes=None)(x)
        np.testing.assert_allclose(found, x.sum(0))

    def test_mapped_axes_may_be_any_axis_and_results_go_anywhere(self, rng):
        x = rng.normal(size=(4, 3))
        found = over(lambda a: a - rlx.pmean(a, "i"), in_axes=1, out_axes=1)(x)
        np.testing.assert_allclose(found, x - x.mean(1, keepdims=True))


def explicit(name: str) -> Callable[[Any], Any]:
    """The reduction over the first axis, repeated for each example."""
    reduction = {"psum": rlx.sum, "pmean": rlx.mean, "pmax": rlx.max, "pmin": rlx.min}[name]
    return lambda x: rlx.broadcast_to(reduction(x, axis=0, keepdims=True), x.shape)


class TestDerivatives:
    """Next to the program with an explicit axis, whose derivatives are those of the standard reductions."""

    @pytest.mark.medium
    @pytest.mark.parametrize("name", NUMPY)
    def test_vjp_jvp_and_second_derivatives_are_those_of_the_explicit_axis(self, name, rng):
        x, weights, along = (rng.normal(size=(4, 3)) for _ in range(3))
        collective = getattr(rlx, name)

        def named(x):
            return rlx.sum(over(lambda a, w: w * collective(a * a * a, "i") * a)(x, weights))

        def plain(x):
            return rlx.sum(weights * explicit(name)(x * x * x) * x)

        np.testing.assert_allclose(rlx.grad(named)(x), rlx.grad(plain)(x), rtol=1e-12)
        np.testing.assert_allclose(rlx.jvp(named, (x,), (along,)), rlx.jvp(plain, (x,), (along,)), rtol=1e-12)
        np.testing.assert_allclose(rlx.hvp(named, (x,), (along,)), rlx.hvp(plain, (x,), (along,)), rtol=1e-11)
        step = 1e-6 * along
        differences = (float(named(x + step)) - float(named(x - step))) / 2e-6
        np.testing.assert_allclose(np.sum(np.asarray(rlx.grad(named)(x)) * along), differences, rtol=1e-6)

    @pytest.mark.medium
    @pytest.mark.parametrize("name", NUMPY)
    def test_a_gradient_inside_of_the_mapping_is_that_of_the_sum_of_all_results(self, name, rng):
        x, weights = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
        collective = getattr(rlx, name)

        def loss(a, w):
            return rlx.sum(w * collective(a * a * a, "i") * a)

        inside = over(rlx.grad(loss))(x, weights)
        outside = rlx.grad(lambda x: rlx.sum(over(loss)(x, weights)))(x)
        np.testing.assert_allclose(inside, outside, rtol=1e-12)
        forward = over(lambda a, w: rlx.jvp(lambda a: loss(a, w), (a,), (w,))[1])(x, weights)
        expected = rlx.jvp(lambda x: over(loss)(x, weights), (x,), (weights,))[1]
        np.testing.assert_allclose(forward, expected, rtol=1e-12)

    def test_ties_between_examples_share_the_derivative_evenly(self):
        x = np.float64([[1, 4], [3, 4], [3, 0]])
        expected = np.float64([[0, 0.5], [0.5, 0.5], [0.5, 0]])
        assert_all(rlx.grad(lambda x: rlx.sum(over(lambda a: rlx.pmax(a, "i"), out_axes=None)(x)))(x), expected)
        assert_all(over(rlx.grad(lambda a: rlx.sum(rlx.pmax(a, "i"))))(x), 3 * expected)  # three losses
        assert_all(rlx.grad(lambda x: rlx.sum(over(lambda a: rlx.pmax(a, "i"))(x)))(x), 3 * expected)

    def test_derivatives_of_an_extreme_at_nan_are_nan(self):
        x = np.float64([[1, np.nan], [3, 4]])
        expected = np.float64([[0, np.nan], [2, np.nan]])
        assert_all(over(rlx.grad(lambda a: rlx.sum(rlx.pmax(a, "i"))))(x), expected)

    def test_integers_and_positions_have_no_derivative(self):
        x, n = np.float64([1, 2, 3]), np.int32([1, 2, 4])
        found = over(rlx.grad(lambda a, n: a * rlx.psum(n, "i") * rlx.axis_index("i")))(x, n)
        assert_all(found, np.float64([0, 7, 14]))

    def test_linearize_and_vjp_inside_of_the_mapping(self, rng):
        x, t = rng.normal(size=3), rng.normal(size=3)

        def function(a):
            return rlx.psum(rlx.sin(a), "i") * a

        def both(a, t):
            value, linear = rlx.linearize(function, a)
            again, pull = rlx.vjp(function, a)
            return value, again, linear(t), pull(t)[0]

        value, again, tangent, cotangent = over(both)(x, t)
        jacobian = np.diag([np.sin(x).sum()] * 3) + x[:, None] * np.cos(x)
        np.testing.assert_allclose(value, again)
        np.testing.assert_allclose(tangent, jacobian @ t, rtol=1e-12)
        np.testing.assert_allclose(cotangent, jacobian.T @ t, rtol=1e-12)

    @pytest.mark.medium
    def test_jacobians_inside_and_outside_of_the_mapping(self, rng):
        x = rng.normal(size=(3, 2))

        def function(a):
            return rlx.psum(a * a, "i") * a[0]

        for of in (rlx.jacfwd, rlx.jacrev):
            whole = np.asarray(of(lambda x: over(function)(x))(x))  # [result example, result, example, argument]
            inside = np.asarray(over(of(function))(x))
            if of is rlx.jacrev:  # of the sum of all members' results
                np.testing.assert_allclose(inside, whole.sum(0).transpose(1, 0, 2), rtol=1e-12)
            else:  # along tangents of all members
                np.testing.assert_allclose(inside, whole.sum(2), rtol=1e-12)


class TestOtherTransformations:
    def test_inside_of_scan_the_carry_that_is_equal_for_all_needs_no_axis(self, rng):
        x, steps = rng.normal(size=3), rng.normal(size=4)

        def function(a):
            return rlx.scan(lambda c, t: (c + rlx.psum(t * a, "i"), rlx.psum(a, "i") * t), np.float64(0), steps)

        total, each = over(function, out_axes=None)(x)
        np.testing.assert_allclose(total, x.sum() * steps.sum())
        np.testing.assert_allclose(each, x.sum() * steps)

    def test_a_body_that_no_mapped_value_reaches_is_still_summed(self):
        """The trap: batching copies what no mapped value reaches."""
        found = over(
            lambda _: rlx.scan(lambda c, t: (c + rlx.psum(t, "i"), None), np.float64(0), np.float64([1, 2]))[0]
        )
        assert_all(found(np.zeros(4)), np.float64([12] * 4))
        counted = over(lambda _: rlx.scan(lambda c, _: (c + rlx.axis_index("i"), None), np.int64(0), length=3)[0])
        assert_all(counted(np.zeros(4)), np.array([0, 3, 6, 9]))
        called = over(lambda _: rlx.checkpoint(lambda w: rlx.psum(w, "i"))(np.float64(2)), out_axes=None)
        assert float(called(np.zeros(4))) == 8

    def test_a_loop_that_runs_until_all_agree(self):
        def function(a):
            return rlx.while_loop(lambda c: rlx.pmax(c, "i") < 100, lambda c: 2 * c + rlx.pmin(c, "i"), a)

        expected = np.float64([1, 2, 5])
        while expected.max() < 100:
            expected = 2 * expected + expected.min()
        assert_all(over(function)(np.float64([1, 2, 5])), expected)

    def test_a_branch_that_all_take(self):
        def function(a):
            return rlx.cond(rlx.psum(a, "i") > 0, lambda a: a * rlx.psum(a, "i"), lambda a: a - rlx.pmean(a, "i"), a)

        assert_all(over(function)(np.float64([1, 2, 5])), np.float64([8, 16, 40]))
        assert_all(over(function)(np.float64([-1, -2, 0])), np.float64([0, -1, 1]))

    @pytest.mark.medium
    def test_gradients_through_loops_and_branches(self, rng):
        x, steps = rng.normal(size=3), rng.normal(size=4)

        def scanned(a, psum):
            return rlx.scan(lambda c, t: (rlx.sin(c) + psum(t * a * c), None), a, steps)[0]

        def bounded(a, psum):
            return rlx.while_loop(lambda c: psum(c[1]) < 12, lambda c: (rlx.sin(c[0]) + psum(a * c[0]), c[1] + 1),
                                  (a, np.float64(0)), max_steps=9)[0]  # fmt: skip

        for loop in (scanned, bounded):
            found = over(rlx.grad(lambda a, f=loop: f(a, lambda v: rlx.psum(v, "i"))))(x)
            plain = rlx.grad(lambda x, f=loop: rlx.sum(over(lambda a: f(a, lambda v: rlx.psum(v, "i")))(x)))(x)
            np.testing.assert_allclose(found, plain, rtol=1e-11)
        step = 1e-6

        def total(x):
            return float(rlx.sum(over(lambda a: scanned(a, lambda v: rlx.psum(v, "i")))(x)))

        differences = [(total(x + step * e) - total(x - step * e)) / (2 * step) for e in np.eye(3)]
        found = over(rlx.grad(lambda a: scanned(a, lambda v: rlx.psum(v, "i"))))(x)
        np.testing.assert_allclose(found, differences, rtol=1e-6)

    def test_a_branch_that_some_take_is_refused_around_a_collective(self):
        x = np.float32([1, 5])
        with pytest.raises(
            AxisNameError, match="if: the predicate differs along axis 'i', and psum over 'i' is inside"
        ):
            over(lambda a: rlx.cond(a > 2, lambda a: rlx.psum(a, "i"), lambda a: a, a))(x)
        with pytest.raises(AxisNameError, match="while: the condition differs along axis 'i', and pmean over 'i'"):
            over(lambda a: rlx.while_loop(lambda c: c < 9, lambda c: c + rlx.pmean(c, "i"), a))(x)

        def nested(a):
            return rlx.scan(lambda c, _: (rlx.pmax(c, "i"), None), a, length=2)[0]

        with pytest.raises(AxisNameError, match="pmax over 'i' is inside"):
            over(lambda a: rlx.cond(a > 2, nested, lambda a: a, a))(x)

    def test_a_branch_that_some_take_may_have_positions_and_other_axes(self):
        x = np.int64([[1, 5, 7], [3, 1, 1]])
        found = over(lambda a: rlx.cond(a > 2, lambda a: rlx.axis_index("i"), lambda a: a, a))(x[0])
        assert_all(found, np.array([1, 1, 2]))
        both = over(over(lambda a, p: rlx.cond(p, lambda a: rlx.psum(a, "i"), lambda a: a, a), "j"), in_axes=(0, None))
        assert_all(both(x, np.array([True, False, True])), np.array([[4, 5, 8], [4, 1, 8]]))

    def test_custom_derivatives_may_sum_over_the_axis(self, rng):
        @rlx.custom_vjp
        def function(a):
            return rlx.psum(a * a, "i")

        function.defvjp(lambda a: (function(a), a), lambda a, g: (7 * a * rlx.psum(g, "i"),))

        @rlx.custom_jvp
        def forward(a):
            return rlx.psum(a * a, "i")

        forward.defjvp(lambda primals, tangents: (forward(*primals), 5 * rlx.psum(primals[0] * tangents[0], "i")))
        x = rng.normal(size=3)
        np.testing.assert_allclose(over(function)(x), [np.sum(x * x)] * 3)
        np.testing.assert_allclose(over(rlx.grad(function))(x), 7 * x * 3)
        np.testing.assert_allclose(rlx.grad(lambda x: rlx.sum(over(function)(x)))(x), 7 * x * 3)
        np.testing.assert_allclose(over(rlx.grad(forward))(x), 5 * x * 3)
        np.testing.assert_allclose(rlx.grad(lambda x: rlx.sum(over(forward)(x)))(x), 5 * x * 3)

    def test_rematerialised_and_compiled_inner_functions(self, rng):
        x = rng.normal(size=3)

        def function(a):
            return rlx.psum(rlx.sin(a), "i") * a

        expected = over(rlx.grad(function))(x)
        np.testing.assert_allclose(over(rlx.grad(rlx.checkpoint(function)))(x), expected, rtol=1e-12)
        np.testing.assert_allclose(over(rlx.grad(rlx.jit(function)))(x), expected, rtol=1e-12)
        np.testing.assert_allclose(rlx.jit(over(rlx.grad(function)))(x), expected, rtol=1e-12)

    def test_both_orders_of_two_mappings(self, rng):
        x = rng.normal(size=(2, 3))
        inner = over(lambda row: rlx.vmap(lambda a: a / rlx.psum(a, "i"))(row))(x)
        outer = rlx.vmap(over(lambda a: a / rlx.psum(a, "i")), in_axes=1, out_axes=1)(x)
        np.testing.assert_allclose(inner, x / x.sum(0))
        np.testing.assert_allclose(outer, inner)

    @pytest.mark.parametrize("size", [1, 3, 6])
    def test_the_number_of_examples_may_be_a_symbol(self, size, rng):
        def function(a):
            index = rlx.astype(rlx.axis_index("i"), "f32")
            return a / rlx.psum(a, "i") + rlx.pmean(a, "i"), index, rlx.psum(1, "i"), rlx.psum(np.float32(2), "i")

        compiled = rlx.compile(over(function), rlx.spec("f32[n]"))
        x = rng.uniform(1, 2, size).astype(np.float32)
        shares, index, count, constant = compiled(x)
        np.testing.assert_allclose(shares, x / x.sum() + x.mean(), rtol=1e-6)
        assert_all(index, np.arange(size, dtype=np.float32))
        assert_all(count, np.full(size, size))
        assert_all(constant, np.full(size, 2 * size, np.float32))
        gradient = rlx.compile(over(rlx.grad(lambda a: rlx.psum(a * a, "i") * a)), rlx.spec("f64[n]"))
        x = rng.normal(size=size)
        np.testing.assert_allclose(gradient(x), 2 * x * x.sum() + np.sum(x * x), rtol=1e-12)

    def test_eval_shape_knows_the_axes_of_the_mapping(self):
        seen: list[Any] = []

        def function(a):
            seen.append(rlx.eval_shape(lambda: rlx.psum(a, "i")))
            return a

        over(function)(np.zeros((3, 2), np.float32))
        assert str(seen[0]) == "f32[2]"

    def test_no_collective_is_left_in_a_program(self):
        graph = rlx.trace(
            over(rlx.grad(lambda a: rlx.pmax(rlx.psum(a, "i"), "i") * rlx.axis_size("i"))), rlx.spec("f32[3]")
        )
        assert not any(isinstance(op, OverNamedAxes) for op in ops_inside(graph))

    def test_a_position_is_not_folded_before_its_axis_is_mapped(self):
        """Passes may run on a function before it is differentiated, while its axis is still a name."""
        builder = Builder("positions")
        with building(builder):
            graph = builder.finish([AxisIndex("i", 3)() * 2])
        folded = fold(graph, limit=1 << 20).graph
        found = Executable(compile_graph(vmap_graph(folded, 0, 0, 3, axis_name="i"))).run_slots([])
        assert_all(found[0], np.array([0, 2, 4]))

    def test_values_and_gradients_of_constants_and_positions(self):
        found = over(rlx.value_and_grad(lambda a: a * rlx.axis_index("i") * rlx.psum(np.float64(1), "i")))(
            np.float64([1, 1, 1])
        )
        assert_all(found[0], np.float64([0, 3, 6]))
        assert_all(found[1], np.float64([0, 3, 6]))


def assert_all(found: Any, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(np.asarray(found), expected)
    assert np.asarray(found).dtype == np.asarray(expected).dtype
