"""`rlx.forward_backward`: two programs over one region of weights, each guarantee of it tested by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn, optim
from rlx_core.errors import ConfigError, DtypeError, RlxError, ShapeError, UnknownNameError
from rlx_core.functions.forward_backward import ForwardBackward
from rlx_core.functions.weight_layout import WeightLayout
from rlx_core.ir.graph import leaf_name
from rlx_core.ir.strides import Strides
from rlx_core.ir.types import TensorType, spec

Params = dict[str, Any]


def initial() -> Params:
    rng = np.random.default_rng(0)
    shapes = {"w0": (8, 32), "w1": (32, 16), "b1": (16,), "w2": (16, 3)}
    return {name: (rng.standard_normal(dims) / 4).astype(np.float32) for name, dims in shapes.items()}


def batch() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((10, 8)).astype(np.float32), rng.integers(0, 3, 10)


def loss(params: Params, x: Any, labels: Any) -> Any:
    h = nn.gelu(x @ params["w0"])
    h = nn.linear(h, params["w1"][:, ::-1], params["b1"], activation="gelu")
    return nn.cross_entropy(h @ params["w2"].T.T, labels)


@pytest.fixture(scope="module")
def pair() -> ForwardBackward:
    return rlx.forward_backward(loss, initial(), *batch())


def test_the_layout_is_in_the_order_of_names_and_holds_weights_only() -> None:
    layout = WeightLayout.of({"b": spec("f32[3]"), "a": spec("f64[2, 2]"), "c": spec("i8[]"), "empty": spec("f32[0]")})

    assert {name: place.offset for name, place in layout.places.items()} == {"a": 0, "b": 64, "c": 128, "empty": 192}
    assert layout.nbytes == 192
    assert list(layout.places) == sorted(layout.places)
    views = layout.views(layout.allocate())
    assert views["a"].ctypes.data % 64 == 0
    assert {n: TensorType(rlx.result_type(v), v.shape) for n, v in views.items()} == {
        n: place.type for n, place in layout.places.items()
    }


@pytest.mark.medium
def test_the_gradients_are_those_of_one_program(pair: ForwardBackward) -> None:
    pair.rebind(initial())
    value, saved = pair.forward(*batch())
    expected, gradients = rlx.value_and_grad(loss)(initial(), *batch())

    np.testing.assert_allclose(value, expected, rtol=1e-6)
    found = pair.backward(saved)
    assert found.keys() == gradients.keys()
    for name in gradients:
        np.testing.assert_allclose(found[name], gradients[name], rtol=1e-5, atol=1e-7)


def test_both_programs_read_the_same_bytes(pair: ForwardBackward) -> None:
    """What is written to a weight holds for both programs, without telling either."""
    pair.rebind(initial())
    pair(*batch())
    other = {name: 2 * w for name, w in initial().items()}
    for name, w in pair.weights.items():
        w[...] = other[name]

    value, gradients = pair(*batch())
    expected, wanted = rlx.value_and_grad(loss)(other, *batch())
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    for name in wanted:
        np.testing.assert_allclose(gradients[name], wanted[name], rtol=1e-5, atol=1e-7)


def test_a_run_writes_no_byte_of_the_weights(pair: ForwardBackward) -> None:
    pair.rebind(initial())
    before = pair.region.copy()
    for _ in range(4):  # checked, and through the entry that later calls take
        pair(*batch())
    np.testing.assert_array_equal(pair.region, before)


@pytest.mark.parametrize("which", [0, 1], ids=["forward", "backward"])
def test_weights_are_inputs_that_a_plan_neither_holds_nor_overwrites(pair: ForwardBackward, which: int) -> None:
    """So no activation and no workspace, which lie in the arena, can lie in the region."""
    lir = pair.programs[which].lir
    weights = {leaf_name(v): v for v in lir.graph.inputs if leaf_name(v) in pair.layout.places}

    assert list(weights) == list(pair.layout.places), "by name, first, after optimisation as before"
    assert not any(v in lir.slots for v in weights.values())
    assert not any(v in lir.donated for v in weights.values())
    assert lir.steps
    assert not {lir.root_of(r) for step in lir.steps for r in step.node.results} & {*weights.values()}


def test_views_of_weights_lie_inside_them(pair: ForwardBackward) -> None:
    seen = 0
    for program in pair.programs:
        weights = {v for v in program.lir.graph.inputs if leaf_name(v) in pair.layout.places}
        for value, alias in program.lir.aliases.items():
            if alias.root in weights:
                low, high = extent(value.type, alias.strides, alias.byte_offset)
                assert 0 <= low <= high <= alias.root.type.static_nbytes
                seen += 1
    assert seen, "the derivative reads a weight transposed"


def extent(type: TensorType, strides: Strides, offset: int) -> tuple[int, int]:
    ends = [(n - 1) * s for n, s in zip(type.static_shape, strides, strict=True)]
    low = offset + sum(min(0, e) for e in ends)
    return low, offset + sum(max(0, e) for e in ends) + type.dtype.itemsize


def test_the_derivative_is_that_of_the_program_before_fusion(pair: ForwardBackward) -> None:
    """The graphs have no fused op; each program is optimised by itself, and then they do."""
    for graph, program in zip(pair.graphs, pair.programs, strict=True):
        assert not any("fused" in n.op.name for n in graph.nodes)
        assert any("fused" in s.node.op.name for s in program.lir.steps)


def test_what_the_derivative_reads_is_saved_or_computed_again_as_is_said() -> None:
    def layer(p: Params, x: Any) -> Any:
        return rlx.sin(rlx.exp(x * p["w"]))

    x, params = np.float32([1, 2, 3]), {"w": np.float32([0.1, 0.2, 0.3])}
    kept = rlx.forward_backward(lambda p, x: rlx.sum(layer(p, x)), params, x)
    again = rlx.forward_backward(lambda p, x: rlx.sum(rlx.checkpoint(layer)(p, x)), params, x)

    def named(pair: ForwardBackward, which: int) -> list[str]:
        return [n.op.name for n in pair.graphs[which].nodes]

    assert "rlx.exp" not in named(kept, 1)
    assert "rlx.exp" in named(again, 1)
    assert len(kept._split.saved) > len(again._split.saved) == 1, "of a checkpoint the argument alone is kept"
    for pair in (kept, again):
        _, gradients = pair(x)
        np.testing.assert_allclose(gradients["w"], rlx.grad(lambda p: rlx.sum(layer(p, x)))(params)["w"], rtol=1e-6)


def test_what_is_saved_is_the_callers_to_keep(pair: ForwardBackward) -> None:
    """Neither the arguments, nor the results, nor another run share memory with it."""
    pair.rebind(initial())
    x, labels = batch()
    _, saved = pair.forward(x, labels)
    expected = pair.backward(saved)
    x[...] = np.nan
    pair.forward(*[2 * a if a.dtype == np.float32 else a for a in batch()])
    again = pair.backward(saved)
    for name in expected:
        np.testing.assert_array_equal(again[name], expected[name])


def test_sizes_at_run_time() -> None:
    """A size that only the shapes of results have in the backward program is told by what is saved."""

    def total(p: Any, x: Any) -> Any:
        return rlx.sum(x) + rlx.sum(p * p)

    pair = rlx.forward_backward(total, np.float32([1, 2]), rlx.spec("f32[n, m]"), wrt=["p", "x"])
    for dims in ((2, 3), (5, 1)):
        value, gradients = pair(np.ones(dims, np.float32))
        assert value == np.prod(dims) + 5
        np.testing.assert_array_equal(gradients["x"], np.ones(dims))
        np.testing.assert_array_equal(gradients["p"], [2, 4])


def test_results_of_any_structure_take_cotangents() -> None:
    def function(w: Any, x: Any) -> Any:
        return {"product": w * x, "count": rlx.sum(x > 0)}

    w, x = np.float64([1, 2]), np.float64([3, -4])
    pair = rlx.forward_backward(function, w, x, wrt=("x",))
    value, saved = pair.forward(x)
    assert value["count"] == 1
    found = pair.backward(saved, {"product": np.float64([1, 10]), "count": 0})
    np.testing.assert_array_equal(found["x"], [1, 20])
    with pytest.raises(ShapeError, match="not one real scalar"):
        pair.backward(saved)


def test_auxiliary_results_have_no_cotangent() -> None:
    pair = rlx.forward_backward(lambda w, x: (rlx.sum(w * x), w + x), np.float32(2), np.float32([1, 2]), has_aux=True)
    (value, aux), gradient = pair(np.float32([1, 2]))
    assert (value, gradient) == (6, 3)
    np.testing.assert_array_equal(aux, [3, 4])


@pytest.mark.medium
def test_a_loop_and_random_numbers() -> None:
    def function(w: Any, key: Any) -> Any:
        noise = rlx.random.normal(key, (4,))
        final, _ = rlx.scan(lambda c, x: (rlx.tanh(c * w + x), c), rlx.zeros((4,)), rlx.broadcast_to(noise, (5, 4)))
        return rlx.sum(final)

    w, key = np.float32([0.5, 1, 0.2, -1]), rlx.random.key(3)
    value, gradient = rlx.forward_backward(function, w, key)(key)
    expected, wanted = rlx.value_and_grad(function)(w, key)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5)


@pytest.mark.medium
def test_an_optimiser_returns_weights_that_both_programs_are_bound_to() -> None:
    pair = rlx.forward_backward(loss, initial(), *batch())
    optimiser = optim.adam(0.01)

    @rlx.jit(donate=("params", "state"))
    def update(params: Params, state: Any, gradients: Params) -> Any:
        updates, state = optimiser.update(gradients, state, params)
        return optim.apply_updates(params, updates), state

    state = optimiser.init(initial())
    params: Params = pair.weights
    values = []
    for _ in range(5):
        value, gradients = pair(*batch())
        params, state = update(params, state, gradients)
        values.append(value)
        pair.rebind(params)

    step = rlx.train_step(loss, optimiser)
    one, state = initial(), optimiser.init(initial())
    for expected in values:
        one, state, value = step(one, state, *batch())
        np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_weights_that_are_bound_to_one_another() -> None:
    """What is copied to the region may be the region in another order; on a mistake nothing is written."""
    w = {"a": np.float32([1, 2]), "b": np.float32([3, 4])}
    pair = rlx.forward_backward(lambda p, x: rlx.sum(p["a"] * x - p["b"]), w, np.float32([1, 1]))
    pair.rebind({"a": pair.weights["b"], "b": pair.weights["a"]})
    np.testing.assert_array_equal([*pair.weights.values()], [[3, 4], [1, 2]])
    with pytest.raises(DtypeError, match=r"p\.b must be f32"):
        pair.rebind({"a": np.float32([0, 0]), "b": np.int32([3, 4])})
    np.testing.assert_array_equal(pair.weights["a"], [3, 4])


def _unfit(pair: ForwardBackward) -> Any:
    other = rlx.forward_backward(lambda w, x: rlx.sum(w * x), np.float32([1]), np.float32([1]))
    return pair.backward(other.forward(np.float32([1]))[1])


MISTAKES: dict[str, tuple[type[RlxError], str, Any]] = {
    "no such leaf": (
        UnknownNameError,
        "no value is called 'params.w9'",
        lambda pair: rlx.forward_backward(loss, initial(), *batch(), wrt=["params.w9"]),
    ),
    "an integer leaf": (
        DtypeError,
        "has no gradient",
        lambda pair: rlx.forward_backward(loss, initial(), *batch(), wrt=["labels"]),
    ),
    "weights of unknown size": (
        ShapeError,
        "where weights lie depends on their sizes",
        lambda pair: rlx.forward_backward(lambda w: rlx.sum(w * w), rlx.spec("f32[n]")),
    ),
    "no pair": (
        ShapeError,
        r"must return \(result, aux\)",
        lambda pair: rlx.forward_backward(loss, initial(), *batch(), has_aux=True),
    ),
    "saved by another pair": (ConfigError, "the same pair's forward", _unfit),
    "another batch": (
        ShapeError,
        "must be f32",
        lambda pair: pair.forward(np.zeros((3, 8), np.float32), np.zeros(3, int)),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_said(name: str, pair: ForwardBackward) -> None:
    kind, says, make = MISTAKES[name]
    with pytest.raises(kind, match=says):
        make(pair)
