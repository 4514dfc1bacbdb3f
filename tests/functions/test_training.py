"""`rlx.train_step`: the same numbers as its parts, written where parameters and state lie, behind the gradients' products."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import optree
import pytest

import rlx_core as rlx
from rlx_core import nn, optim
from rlx_core.errors import ConfigError, DonatedError, FormatError, ShapeError
from rlx_core.testing.fake_device import FakeDriver, fake_host

Params = dict[str, Any]


def initial(dtype: Any = np.float32) -> Params:
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.standard_normal(s) / 4 for i, s in enumerate([(8, 32), (32, 16), (16, 3)])}
    return {n: w.astype(dtype) for n, w in (weights | {"b": np.zeros(3)}).items()}


def batch() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((16, 8)).astype(np.float32), rng.integers(0, 3, 16)


def loss(params: Params, x: Any, labels: Any) -> Any:
    h = nn.relu(nn.relu(x @ params["w0"]) @ params["w1"])
    return nn.cross_entropy(nn.linear(h, params["w2"], params["b"]), labels)


def steps_of(step: Any) -> list[Any]:
    return [s for s in step.executables[-1].lir.steps if s.node.op.name == "rlx.fused_matmul_epilogue"]


OPTIMISERS = {
    "sgd": optim.sgd(0.1),
    "momentum": optim.sgd(0.1, 0.9, nesterov=True),
    "adam": optim.adam(0.01),
    "adamw with a schedule": optim.adamw(optim.warmup_cosine_decay_schedule(0.0, 0.01, 3, 10)),
    "lion": optim.lion(0.001),
    "rmsprop": optim.rmsprop(0.01),
    "adagrad": optim.adagrad(0.1),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", OPTIMISERS)
def test_the_update_of_a_weight_is_written_with_its_gradient(name: str) -> None:
    """Each weight, and all that the optimiser remembers of it, is a result of the product that is its gradient."""
    optimiser = OPTIMISERS[name]
    step = rlx.train_step(loss, optimiser)
    params, state = initial(), optimiser.init(initial())
    for _ in range(3):
        params, state, _ = step(params, state, *batch())

    averages = sum(np.shape(leaf) == (8, 32) for leaf in optree.tree_leaves(state))
    updates = {s.node.results[0].shape: s for s in steps_of(step) if len(s.node.results) == 1 + averages}
    assert {(8, 32), (32, 16), (16, 3)} <= updates.keys()
    for shape in ((8, 32), (32, 16), (16, 3)):
        assert len(updates[shape].in_place) == 1 + averages, "written where they lie"
    assert "rlx.fused_matmul_epilogue" in str(step.report)


@pytest.mark.medium
@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_step_has_the_numbers_of_its_parts(name: str) -> None:
    optimiser = OPTIMISERS[name]
    step = rlx.train_step(loss, optimiser)
    params, other = initial(), initial()
    state, its = optimiser.init(params), optimiser.init(other)
    for _ in range(4):
        value, grads = rlx.value_and_grad(loss)(other, *batch())
        updates, its = optimiser.update(grads, its, other)
        other = optim.apply_updates(other, updates)
        params, state, found = step(params, state, *batch())
        np.testing.assert_allclose(found, value, rtol=1e-5)
    for n in params:
        np.testing.assert_allclose(params[n], other[n], rtol=1e-4, atol=1e-5)


@pytest.mark.medium
def test_parameters_are_given_away_unless_they_are_not_donated() -> None:
    optimiser = optim.adam(0.1)
    for is_given in (True, False):
        params = {n: rlx.asarray(p) for n, p in initial().items()}
        before = {n: np.array(p) for n, p in params.items()}
        rlx.train_step(loss, optimiser, donate=is_given)(params, optimiser.init(params), *batch())
        assert all(p.is_donated == is_given for p in params.values())
        assert is_given or all(np.array_equal(params[n], before[n]) for n in params)


def test_arrays_of_numpy_that_the_caller_keeps_stay_as_they_are() -> None:
    optimiser = optim.adam(0.1)
    step = rlx.train_step(loss, optimiser)
    start = initial()
    before = {n: p.copy() for n, p in start.items()}
    runs = []
    for _ in range(2):
        params, state = start, optimiser.init(start)
        for _ in range(4):
            params, state, _ = step(params, state, *batch())
        runs.append(params)
    for name in start:
        np.testing.assert_array_equal(start[name], before[name])
        np.testing.assert_array_equal(runs[0][name], runs[1][name])


def test_the_best_parameters_are_not_overwritten_in_silence() -> None:
    optimiser = optim.adam(0.1)
    step = rlx.train_step(loss, optimiser)
    params, state = initial(), optimiser.init(initial())
    params, state, _ = step(params, state, *batch())
    best = params
    step(params, state, *batch())
    with pytest.raises(DonatedError, match=r"donated \(argument"):
        rlx.sum(next(iter(best.values())))


def test_what_the_loss_returns_besides() -> None:
    def with_logits(weights: Params, x: Any, *, factor: float = 1.0) -> Any:
        y = x @ weights["w"]
        return factor * rlx.sum(y * y), {"y": y}

    optimiser = optim.sgd(0.25)
    step = rlx.train_step(with_logits, optimiser, has_aux=True, donate=False)
    weights = {"w": np.float32([[1], [2]])}
    x = np.float32([[1, 1]])
    after, _, (value, aux) = step(weights, optimiser.init(weights), x, factor=2.0)
    assert value == 18
    np.testing.assert_array_equal(aux["y"], [[3]])
    np.testing.assert_array_equal(after["w"], [[-2], [-1]])


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [rlx.f16, rlx.bf16], ids=str)
def test_16_bit_parameters_are_trained(dtype: Any) -> None:
    optimiser = optim.dynamic_loss_scale(optim.adamw(0.01))
    step = rlx.train_step(loss, optimiser)
    params = initial(dtype.numpy)
    state = optimiser.init(params)
    x, labels = batch()
    values = []
    for _ in range(60):
        params, state, value = step(params, state, x.astype(dtype.numpy), labels)
        values.append(float(value))
    assert all(p.dtype == dtype.numpy for p in params.values())
    assert values[-1] < 0.3 * values[0]


def test_a_step_that_overflows_changes_nothing_but_the_scale() -> None:
    optimiser = optim.dynamic_loss_scale(optim.adam(0.1), initial_scale=2.0**18, growth_interval=4)
    step = rlx.train_step(lambda w, x: rlx.sum(w * x), optimiser)
    w, x = np.float16([1, 2]), np.float16([4, 8])
    state = optimiser.init(w)
    for skipped in (1, 2, 3):  # from 2**16 on the scale itself is too large for f16
        w, state, value = step(w, state, x)
        np.testing.assert_array_equal(w, np.float16([1, 2]))
        assert (state.skipped, state.scale, state.inner_state[0].count) == (skipped, 2.0 ** (18 - skipped), 0)
        assert value == 20, "the loss is the plain one"
    while state.skipped == skipped:
        skipped += 1
        w, state, _ = step(w, state, x)
    np.testing.assert_allclose(w, np.float16([0.9, 1.9]), rtol=1e-3)
    assert state.inner_state[0].count == 1


def test_an_optimiser_does_not_travel() -> None:
    step = rlx.train_step(loss, optim.sgd(0.1))
    assert repr(step) == "<jit train_step_loss: 0 compiled variants>"
    with pytest.raises(FormatError, match="pickle: a gradient transformation is made of functions"):
        pickle.dumps(step)
    assert repr(copy.deepcopy(step)) == repr(step)


def test_sizes_that_differ_are_said_by_name() -> None:
    optimiser = optim.adam(0.1)
    params = initial()
    step = rlx.train_step(loss, optimiser)
    with pytest.raises(ShapeError, match="another structure"):
        step(params, optimiser.init({"w0": params["w0"]}), *batch())


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: rlx.train_step(loss, optim.adam), "train_step: takes a transformation"),
        (lambda: rlx.train_step(lambda params, state: params, optim.sgd(0.1)), "has an argument 'state'"),
        (lambda: rlx.train_step(lambda: 1.0, optim.sgd(0.1)), "takes no parameters by position"),
        (lambda: rlx.train_step(loss, optim.sgd(0.1), has_aux=1), "has_aux must be True or False"),
    ],
)
def test_a_mistake_is_said(make: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()


def test_a_training_loop_on_a_device_transfers_only_its_batch() -> None:
    """The loop of docs/how-to/train.md: parameters and state stay where they are, and the loss comes back when it is read."""
    drivers: list[FakeDriver] = []
    host = fake_host(1, drivers=drivers)
    rng = np.random.default_rng(0)
    params = {"w": rng.standard_normal(32).astype(np.float32), "b": np.zeros(32, np.float32)}
    x, y = rng.standard_normal((16, 32)).astype(np.float32), rng.standard_normal((16, 32)).astype(np.float32)

    def loss(params: dict[str, Any], x: Any, y: Any) -> Any:
        return rlx.mean((x * params["w"] + params["b"] - y) ** 2)

    optimiser = rlx.optim.adamw(1e-2)
    step = rlx.train_step(loss, optimiser, target="fake", host=host)
    state = optimiser.init(params)
    params, state, first = step(params, state, x, y)
    records = drivers[0].records
    for _ in range(3):
        before = len(records)
        params, state, value = step(params, state, x, y)
        moved = [record for record in records[before:] if record[0] in ("write", "read")]
        assert sum(n for word, n in moved if word == "write" and n > 64) == x.nbytes + y.nbytes
        assert sum(n for word, n in moved if word == "read" and n > 64) == 0
    before = len(records)
    assert float(value) < float(first)
    assert [n for word, n in records[before:] if word == "read"] == [4, 4]


def test_statistics_that_are_not_trained_go_through_the_step() -> None:
    from rlx_core import nn

    def normalised(w: Any, statistics: Any, x: Any) -> Any:
        h, mean, var = nn.batch_norm(x @ w, *statistics)
        return rlx.sum(h**3), (mean, var)

    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (8, 3)))
    statistics = (np.zeros(4, np.float32), np.ones(4, np.float32))
    optimiser = optim.sgd(0.1)
    step = rlx.train_step(normalised, optimiser, has_aux=True, donate=False)
    state = optimiser.init(w)
    for _ in range(2):
        _, expected = normalised(w, statistics, x)
        w, state, (_, statistics) = step(w, state, statistics, x)
        for found, wanted in zip(statistics, expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
