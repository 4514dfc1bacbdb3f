"""Control flow as functions: against the same programs written out in Python, and float64 differences, on every road."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, DtypeError, MissingRuleError, ShapeError, TraceError, WrongInputCountError

f32 = np.float32
RNG = np.random.default_rng(7)
W = RNG.normal(size=(3, 3)) * 0.4
XS = RNG.normal(size=(4, 3))
C = RNG.normal(size=3)
STEPS = 4


def looped(w: Any, c: Any, xs: Any) -> Any:
    """A recurrent cell: carries and results depend on everything."""

    def cell(c: Any, x: Any) -> tuple[Any, Any]:
        after = rlx.tanh(c @ w + x)
        return after, after * c

    c, ys = rlx.scan(cell, c, xs)
    return rlx.sum(c * c) + rlx.sum(rlx.sin(ys))


def unrolled(w: Any, c: Any, xs: Any) -> Any:
    total = 0.0
    for t in range(STEPS):
        after = rlx.tanh(c @ w + xs[t])
        total = total + rlx.sum(rlx.sin(after * c))
        c = after
    return rlx.sum(c * c) + total


def backwards(w: Any, c: Any, xs: Any) -> Any:
    """Two carries that change places, a result a step, from the end to the beginning."""

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        return {"a": carry["b"], "b": rlx.tanh(carry["a"] @ w * x)}, carry["a"] * x

    carry, ys = rlx.scan(step, {"a": c, "b": c * 2.0}, xs, reverse=True)
    return rlx.sum(carry["a"] * carry["b"]) + rlx.sum(ys * ys)


def backwards_unrolled(w: Any, c: Any, xs: Any) -> Any:
    a, b, total = c, c * 2.0, 0.0
    for t in reversed(range(STEPS)):
        y = a * xs[t]
        a, b = b, rlx.tanh(a @ w * xs[t])
        total = total + rlx.sum(y * y)
    return rlx.sum(a * b) + total


def grown(w: Any, c: Any, xs: Any) -> Any:
    """A loop that ends by itself, with a bound."""
    c, _ = rlx.while_loop(
        lambda s: (rlx.sum(s[0] * s[0]) < 40.0) & (s[1] < 9),
        lambda s: (s[0] * 1.5 + xs[0] @ w, s[1] + 1),
        (c, 0),
        max_steps=12,
    )
    return rlx.sum(c * c * c)


def grown_unrolled(w: Any, c: Any, xs: Any) -> Any:
    """As many rounds as that loop goes with these numbers (`test_the_loop_goes_four_times`)."""
    for _ in range(4):
        c = c * 1.5 + xs[0] @ w
    return rlx.sum(c * c * c)


def chosen(w: Any, c: Any, xs: Any) -> Any:
    """One of two functions a step, as the carry says, inside a counted loop."""

    def step(i: Any, c: Any) -> Any:
        return rlx.cond(rlx.sum(c) > 0.0, lambda c: rlx.tanh(c @ w), lambda c: c * c + xs[i], c)

    return rlx.sum(rlx.fori_loop(0, STEPS, step, c))


def chosen_unrolled(w: Any, c: Any, xs: Any) -> Any:
    for t in range(STEPS):
        c = rlx.where(rlx.sum(c) > 0.0, rlx.tanh(c @ w), c * c + xs[t])
    return rlx.sum(c)


PAIRS = [(looped, unrolled), (backwards, backwards_unrolled), (grown, grown_unrolled), (chosen, chosen_unrolled)]
PAIR = pytest.mark.parametrize(("function", "plain"), PAIRS, ids=lambda f: f.__name__)
ARGUMENTS = (W, C, XS)


def wide(function: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    """The results by the reference interpreter, in f64."""
    graph = rlx.trace(function, *args)
    leaves = [np.asarray(leaf) for leaf in optree.tree_leaves(args)]
    return list(rlx.interpret(graph, dict(zip(graph.input_types, leaves, strict=True))))


def same(function: Callable[..., Any], plain: Callable[..., Any], *args: Any, tolerance: float = 1e-10) -> None:
    for a, b in zip(wide(function, *args), wide(plain, *args), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_the_loop_goes_four_times() -> None:
    count = wide(
        lambda c: rlx.while_loop(
            lambda s: (rlx.sum(s[0] * s[0]) < 40.0) & (s[1] < 9), lambda s: (s[0] * 1.5 + XS[0] @ W, s[1] + 1), (c, 0)
        )[1],
        C,
    )
    assert count == [4]


@PAIR
def test_values_are_those_of_the_program_written_out(function: Any, plain: Any) -> None:
    same(function, plain, *ARGUMENTS)


@PAIR
def test_gradients_are(function: Any, plain: Any) -> None:
    same(rlx.grad(function, argnums=(0, 1, 2)), rlx.grad(plain, argnums=(0, 1, 2)), *ARGUMENTS)


@PAIR
def test_gradients_agree_with_differences(function: Any, plain: Any) -> None:
    direction = [RNG.normal(size=a.shape) for a in ARGUMENTS]
    step = 1e-6
    (high,), (low,) = (
        wide(function, *(a + s * d for a, d in zip(ARGUMENTS, direction, strict=True))) for s in (step, -step)
    )
    found = wide(rlx.grad(function, argnums=(0, 1, 2)), *ARGUMENTS)
    along = sum(float((g * d).sum()) for g, d in zip(found, direction, strict=True))
    assert along == pytest.approx((high - low) / (2 * step), rel=1e-6)


@PAIR
def test_tangents_are(function: Any, plain: Any) -> None:
    t = [RNG.normal(size=a.shape) for a in ARGUMENTS]
    same(lambda *x: rlx.jvp(function, x, tuple(t))[1], lambda *x: rlx.jvp(plain, x, tuple(t))[1], *ARGUMENTS)


@PAIR
def test_second_derivatives_are(function: Any, plain: Any) -> None:
    same(
        lambda w, c, xs: rlx.hessian(lambda c: function(w, c, xs))(c),
        lambda w, c, xs: rlx.hessian(lambda c: plain(w, c, xs))(c),
        *ARGUMENTS,
    )
    squared = lambda f: lambda w, c, xs: rlx.sum(rlx.grad(f)(w, c, xs) ** 2)  # noqa: E731
    same(rlx.grad(squared(function)), rlx.grad(squared(plain)), *ARGUMENTS)


@PAIR
@pytest.mark.parametrize("axes", [(None, 0, None), (0, None, 0), (0, 0, 0)])
def test_batches_are(function: Any, plain: Any, axes: tuple[int | None, ...]) -> None:
    # The same numbers twice: the loop that ends by itself is written out for them.
    batch = [a if axis is None else np.stack([a, a]) for a, axis in zip(ARGUMENTS, axes, strict=True)]
    same(rlx.vmap(function, in_axes=axes), rlx.vmap(plain, in_axes=axes), *batch)
    same(rlx.vmap(rlx.grad(function), in_axes=axes), rlx.vmap(rlx.grad(plain), in_axes=axes), *batch)


@pytest.mark.medium
@PAIR
def test_compiled_programs_compute_the_same(function: Any, plain: Any) -> None:
    given = [a.astype(f32) for a in ARGUMENTS]
    for transform in (rlx.jit, rlx.grad, lambda f: rlx.vmap(f, in_axes=(None, 0, None))):
        args = [given[0], np.stack([given[1]] * 2), given[2]] if transform not in (rlx.jit, rlx.grad) else given
        np.testing.assert_allclose(transform(function)(*args), transform(plain)(*args), rtol=2e-5, atol=2e-6)


# ------------------------------------------------------------------------------------------------ what runs


def test_only_the_chosen_branch_runs() -> None:
    """The other one would read outside its table."""
    table = np.arange(3, dtype=f32)
    read = rlx.jit(lambda i: rlx.cond(i < 3, lambda: rlx.take(table, i), lambda: rlx.asarray(f32(-1))))
    assert [float(read(np.int32(i))) for i in (0, 2, 7)] == [0.0, 2.0, -1.0]


def test_a_body_is_not_run_after_the_end() -> None:
    """Its logarithm would be that of 0 there; the gradient is finite, and right."""

    def halved(x: Any) -> Any:
        return rlx.while_loop(
            lambda s: s[0] > 1.0, lambda s: (s[0] - 1.0, s[1] + rlx.log(s[0])), (x, 0.0), max_steps=9
        )[1]

    value, slope = (wide(f, np.array(3.0))[0] for f in (halved, rlx.grad(halved)))
    assert value == pytest.approx(np.log(3) + np.log(2))
    assert slope == pytest.approx(1 / 3 + 1 / 2)


def test_a_loop_of_any_length_is_as_many_nodes() -> None:
    def loss(w: Any, xs: Any) -> Any:
        return rlx.sum(rlx.scan(lambda c, x: (rlx.tanh(c @ w + x), c), w[0], xs)[0])

    short, long = (rlx.trace(rlx.grad(loss), W, np.zeros((n, 3))) for n in (10, 10_000))
    assert len(short) == len(long)


def test_examples_end_their_loops_by_themselves() -> None:
    double = rlx.vmap(lambda x: rlx.while_loop(lambda x: x < 100.0, lambda x: x * 2.0, x))
    assert double(np.array([3, 7, 200], f32)).tolist() == [192.0, 112.0, 200.0]


def test_an_index_outside_means_the_first_or_the_last_branch() -> None:
    pick = rlx.jit(lambda i, x: rlx.switch(i, [lambda x: x, lambda x: x * 10.0, lambda x: x * 100.0], x))
    assert [float(pick(np.int32(i), f32(2))) for i in (-4, 0, 1, 2, 9)] == [2, 2, 20, 200, 200]


def test_a_switch_has_the_gradient_of_its_branch() -> None:
    pick = rlx.grad(lambda x, i: rlx.switch(i, [rlx.sin, lambda x: x * x, lambda x: 3.0 * x], x))
    assert [float(pick(f32(2), np.int32(i))) for i in range(3)] == pytest.approx([np.cos(2.0), 4.0, 3.0], rel=1e-6)


def test_no_step_at_all_leaves_the_carry() -> None:
    carry, ys = rlx.scan(lambda c, x: (c + x, c * x), f32(3), np.zeros(0, f32))
    assert (float(carry), ys.shape) == (3.0, (0,))
    assert float(rlx.fori_loop(5, 2, lambda i, c: c * 0.0, f32(4))) == 4.0
    slope = rlx.grad(lambda c: rlx.scan(lambda c, x: (c * x, None), c, np.zeros(0, f32))[0])
    assert float(slope(f32(2))) == 1.0


def test_bounds_may_be_values() -> None:
    total = rlx.jit(lambda n, x: rlx.fori_loop(0, n, lambda i, s: s + x[i], 0.0))
    assert float(total(np.int32(3), np.arange(5, dtype=f32))) == 3.0


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_checkpoints_change_memory_and_nothing_else(count: int, reverse: bool) -> None:
    xs = RNG.normal(size=(7, 3))

    def loss(w: Any, c: Any, xs: Any, checkpoints: int | None) -> Any:
        c, ys = rlx.scan(lambda c, x: (rlx.tanh(c @ w + x), c * x), c, xs, reverse=reverse, checkpoints=checkpoints)
        return rlx.sum(c * c) + rlx.sum(rlx.sin(ys))

    for transform in (lambda f: f, lambda f: rlx.grad(f, argnums=(0, 1, 2))):
        whole, cut = (wide(transform(lambda *x, k=k: loss(*x, k)), W, C, xs) for k in (None, count))
        for a, b in zip(whole, cut, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_checkpoints_keep_fewer_carries() -> None:
    def loss(c: Any, checkpoints: int | None) -> Any:
        return rlx.sum(rlx.scan(lambda c, _: (rlx.sin(c), None), c, length=100, checkpoints=checkpoints)[0])

    sizes = []
    for checkpoints in (None, 10):
        slope = rlx.grad(lambda c, k=checkpoints: loss(c, k))
        slope(np.ones(1000, f32))
        sizes.append(slope.executables[0].lir.arena_nbytes)
    assert sizes[1] < sizes[0] / 4


@pytest.mark.parametrize(("count", "batch"), [(7, 3), (6, 3), (2, 5), (0, 2), (4, 1)])
def test_a_map_in_batches_is_the_map(count: int, batch: int) -> None:
    """Whole batches, what is left of one, one that is larger than all, and nothing; and its derivative."""
    xs = {"a": np.arange(2.0 * count).reshape(count, 2), "b": np.arange(count)}

    def function(x: Any) -> Any:
        return {"product": x["a"] * x["b"], "total": rlx.sum(x["a"])}

    found, expected = rlx.map(function, xs, batch_size=batch), rlx.map(function, xs)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])
        assert found[name].dtype == expected[name].dtype

    def total(size: int | None) -> Any:
        return rlx.grad(lambda a: rlx.sum(rlx.map(lambda x: rlx.sum(x * x * x), a, batch_size=size)))(xs["a"])

    np.testing.assert_allclose(total(batch), total(None))


def test_batches_of_a_map_have_a_size() -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        rlx.map(rlx.sin, np.ones(3), batch_size=0)
    with pytest.raises(ShapeError, match="a number of elements that is known, not n"):
        rlx.trace(lambda x: rlx.map(rlx.sin, x, batch_size=2), rlx.spec("f32[n]"))


def test_a_map_is_a_loop_over_elements() -> None:
    found = rlx.map(lambda pair: {"sum": pair[0] + pair[1]}, (np.arange(3.0), np.ones(3)))
    np.testing.assert_array_equal(found["sum"], [1, 2, 3])


@pytest.mark.parametrize("count", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("reverse", [False, True])
def test_an_associative_scan_is_the_running_combination(count: int, axis: int, reverse: bool) -> None:
    """2x2 matrix products do not commute, so the order of every pair shows."""
    shape = (count, 2) if axis == 0 else (2, count)
    a, b = RNG.normal(size=(2, *shape))

    def after(first: Any, second: Any) -> Any:  # x -> a·x + b, one function after the other
        return first[0] * second[0], first[1] * second[0] + second[1]

    graph = rlx.trace(lambda p: rlx.associative_scan(after, p, axis=axis, reverse=reverse), (a, b))
    found = rlx.interpret(graph, dict(zip(graph.input_types, (a, b), strict=True)))
    rows = [(np.take(a, i, axis), np.take(b, i, axis)) for i in range(count)]
    order = rows[::-1] if reverse else rows
    running = [order[0]]
    for row in order[1:]:
        running.append(after(running[-1], row))
    expected = running[::-1] if reverse else running
    for got, wanted in zip(found, zip(*expected, strict=True), strict=True):
        np.testing.assert_allclose(got, np.stack(wanted, axis), rtol=1e-12)


def test_a_python_number_that_is_carried_has_the_dtype_that_becomes_of_it() -> None:
    x = np.ones(3, f32)
    assert np.asarray(rlx.fori_loop(0, 3, lambda i, s: s + rlx.take(x, i), 0)).dtype == f32
    assert np.asarray(rlx.while_loop(lambda c: c < 5, lambda c: c + 1, 0)).dtype == np.int64
    assert np.asarray(rlx.scan(lambda c, y: (c + y, None), 0.0, np.ones(3))[0]).dtype == np.float64


# ------------------------------------------------------------------------------------------------- refusals


def refused(function: Any, *args: Any) -> Exception:
    with pytest.raises((DtypeError, ShapeError, TraceError, WrongInputCountError, MissingRuleError)) as caught:
        rlx.trace(function, *args)
    return caught.value


V = np.ones(3, f32)


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (lambda x: rlx.scan(lambda c, y: ({"h": c["h"], "n": x}, None), {"h": x, "n": 0}, x), ShapeError,
         "the carry carry.n is f32[] before a step and f32[3] after it"),
        (lambda x: rlx.scan(lambda c, y: (c.astype(rlx.f64), None), x, x), DtypeError, "f32[3] before a step and f64[3] after"),
        (lambda x: rlx.scan(lambda c, y: ((c, c), None), x, x), ShapeError, "the carry after a step"),
        (lambda x: rlx.scan(lambda c, y: c, x, x), TraceError, "must return a pair"),
        (lambda x: rlx.scan(lambda c, y: (c, y), x, length=-1), ShapeError, "length must be at least 0, not -1"),
        (lambda x: rlx.scan(lambda c, y: (c, y), x), ShapeError, "nothing says how many steps"),
        (lambda x: rlx.scan(lambda c, y: (c, None), x, x, length=4), ShapeError, "has 3 elements along its first axis"),
        (lambda x: rlx.scan(lambda c, y: (c, None), x, (x, x[:2])), ShapeError, "x.1 has 2 elements along its first axis"),
        (lambda x: rlx.scan(lambda c, y: (c, None), x, x[0]), ShapeError, "must have an axis to go along"),
        (lambda x: rlx.cond(x > 0, rlx.sin, rlx.cos, x), ShapeError, "the predicate must be a scalar, not bool[3]"),
        (lambda x: rlx.cond(x[0], rlx.sin, rlx.cos, x), DtypeError, "the predicate must be one bool, not f32[]"),
        (lambda x: rlx.cond(x[0] > 0, rlx.sin, lambda x: x[0], x), ShapeError, "is f32[3] in sin and f32[] in lambda"),
        (lambda x: rlx.cond(x[0] > 0, rlx.sin, lambda x: (x, x), x), ShapeError, "return different structures"),
        (lambda x: rlx.switch(x[0], [rlx.sin], x), DtypeError, "the index must be one integer, not f32[]"),
        (lambda x: rlx.switch(0, [], x), WrongInputCountError, "at least one branch"),
        (lambda x: rlx.while_loop(lambda x: x > 0, lambda x: x - 1, x), ShapeError, "must be one bool, not bool[3]"),
        (lambda x: rlx.while_loop(lambda x: x[0], lambda x: x - 1, x), DtypeError, "must be one bool, not f32[]"),
        (lambda x: rlx.fori_loop(0, x[0], lambda i, s: s, x), DtypeError, "bounds must be integers"),
        (lambda x: rlx.associative_scan(rlx.add, (x, x[:2])), (ShapeError, WrongInputCountError), ""),
        (lambda x: rlx.scan(3, x, x), TraceError, "takes a function"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_with_both_sides(function: Any, error: Any, says: str) -> None:
    found = refused(function, V)
    assert isinstance(found, error)
    assert says in str(found)


def test_a_carry_that_changes_is_told_with_the_line_that_made_it() -> None:
    def body(c: Any, x: Any) -> Any:
        wrong = rlx.concat([c, c])
        return wrong, None

    assert "wrong = rlx.concat([c, c])" in str(refused(lambda x: rlx.scan(body, x, x), V))


def test_reverse_mode_of_an_open_loop_names_the_bound_to_give() -> None:
    found = refused(rlx.grad(lambda x: rlx.while_loop(lambda x: x < 9.0, lambda x: x * 2.0, x)), f32(1))
    assert isinstance(found, MissingRuleError)
    assert "max_steps=K" in str(found)


@pytest.mark.parametrize(
    ("function", "hint"),
    [
        (lambda x: 1 if x > 0 else 2, "rlx.where"),
        (lambda n: range(n), "rlx.fori_loop"),
    ],
)
def test_pythons_own_control_flow_says_what_to_use(function: Any, hint: str) -> None:
    assert hint in str(refused(function, np.int32(1)))


def test_statements_say_it_too() -> None:
    def choice(x: Any) -> Any:
        if x > 0:
            return x
        return -x

    def loop(x: Any) -> Any:
        while x > 0:
            x = x - 1
        return x

    assert "rlx.cond" in str(refused(choice, np.int32(1)))
    assert "rlx.while_loop" in str(refused(loop, np.int32(1)))


@pytest.mark.parametrize(
    ("dtype", "index"), [(np.float64, "i64"), (np.complex128, "i64"), (np.float32, "i32"), (np.int64, "i32")]
)
def test_the_index_of_a_loop_is_as_wide_as_its_floats(dtype: Any, index: str) -> None:
    dtypes = []

    def step(i: Any, c: Any) -> Any:
        dtypes.append(str(i.dtype))
        return c if dtype is np.int64 else c + 0.1 * i

    found = rlx.fori_loop(0, 10, step, dtype(1))
    assert set(dtypes) == {index}
    if index == "i64":
        assert abs(found - 5.5) < 1e-14


def test_an_associative_scan_of_unknown_size_is_refused_by_name() -> None:
    def running(x: Any) -> Any:
        return rlx.associative_scan(rlx.add, x)

    with pytest.raises(ShapeError, match="one known size along the axis, not n") as caught:
        rlx.trace(running, rlx.spec("f32[n]"))
    assert "rlx.scan" in str(caught.value)
    assert rlx.trace(running, rlx.spec("f32[3, n]")).output_types[0] == rlx.spec("f32[3, n]")
