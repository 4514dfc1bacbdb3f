"""What transformations do to gradients, by themselves, in chains, and around others."""

from __future__ import annotations

from typing import Any

import numpy as np
import optree
import pytest

import rlx_core as rlx
from rlx_core import optim
from rlx_core.errors import ConfigError, DtypeError, RlxError, ShapeError, WrongInputCountError

X = np.float32([3, -4])


def after(transformation: Any, grads: Any, params: Any = None, steps: int = 1, *, is_compiled: bool = False) -> Any:
    """The last of several updates with the same gradients, and the state."""
    state = transformation.init(grads if params is None else params)
    update = rlx.jit(transformation.update) if is_compiled else transformation.update
    found: Any = None
    for _ in range(steps):
        found, state = update(grads, state) if params is None else update(grads, state, params)
    return found, state


@pytest.mark.parametrize(
    ("transformation", "wanted"),
    [
        (optim.identity(), [3, -4]),
        (optim.scale(0.5), [1.5, -2]),
        (optim.clip(3.5), [3, -3.5]),
        (optim.clip_by_global_norm(2.5), [1.5, -2]),
        (optim.clip_by_global_norm(5.0), [3, -4]),
        (optim.clip_by_block_rms(np.float32(np.sqrt(12.5) / 2)), [1.5, -2]),
        (optim.add_decayed_weights(2.0), [5, -2]),
        (optim.trace(0.5), [4.5, -6]),
        (optim.ema(0.5), [3, -4]),
        (optim.ema(0.5, debias=False), [2.25, -3]),
        (optim.scale_by_schedule(optim.linear_schedule(0.0, 1.0, 4)), [0.75, -1]),
        (optim.scale_by_param_block_rms(), [3, -4]),
        (optim.chain(optim.scale(2.0), optim.clip(5.0), optim.scale(-1.0)), [-5, 5]),
    ],
)
@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
def test_two_steps_of_a_transformation(transformation: Any, wanted: Any, is_compiled: bool) -> None:
    found, _ = after(transformation, X, np.float32([1, 1]), steps=2, is_compiled=is_compiled)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_the_norm_is_that_of_all_leaves_together() -> None:
    grads = {"a": np.float32([3]), "b": [np.float16(4), np.zeros(0, np.float32)]}
    assert optim.global_norm(grads) == 5
    found, _ = after(optim.clip_by_global_norm(1.0), grads)
    np.testing.assert_allclose(found["a"], [0.6], rtol=1e-6)
    np.testing.assert_allclose(found["b"][0], 0.8, rtol=1e-6)
    assert optim.global_norm({}) == 0
    assert np.isnan(optim.global_norm(np.float32([np.nan, 1])))


def test_nan_is_not_clipped_away() -> None:
    found, _ = after(optim.clip(1.0), np.float32([np.nan, 2]))
    np.testing.assert_array_equal(found, np.float32([np.nan, 1]))


# ------------------------------------------------------------------------------------------- parts


PARAMS = {"a": {"w": X, "b": X + 1}, "c": X}


@pytest.mark.parametrize(
    "mask",
    [
        {"a": {"w": True, "b": False}, "c": False},
        lambda params: {"a": {"w": True, "b": False}, "c": False},
    ],
    ids=["tree", "function"],
)
def test_a_mask_leaves_the_others_as_they_are(mask: Any) -> None:
    found, state = after(optim.masked(optim.trace(0.5), mask), PARAMS, PARAMS, steps=2, is_compiled=True)
    np.testing.assert_array_equal(found["a"]["w"], 1.5 * X)
    np.testing.assert_array_equal(found["a"]["b"], X + 1)
    np.testing.assert_array_equal(found["c"], X)
    assert len(optree.tree_leaves(state)) == 1


def test_a_mask_may_stand_for_a_subtree() -> None:
    found, _ = after(optim.masked(optim.scale(0.0), {"a": True, "c": False}), PARAMS)
    assert not np.any(found["a"]["w"])
    assert not np.any(found["a"]["b"])
    assert np.any(found["c"])


def test_groups_have_transformations_of_their_own() -> None:
    both = optim.multi_transform({"slow": optim.sgd(0.1), "fast": optim.adam(1.0)}, {"a": "slow", "c": "fast"})
    found, state = after(both, PARAMS, PARAMS, is_compiled=True)
    np.testing.assert_allclose(found["a"]["b"], -0.1 * (X + 1), rtol=1e-6)
    np.testing.assert_allclose(found["c"], -np.sign(X), rtol=1e-6)
    assert len(optree.tree_leaves(state)) == 3  # a count and two averages of one leaf


def test_some_weights_decay() -> None:
    decayed = optim.adamw(1.0, weight_decay=0.5, mask=lambda params: {"w": True, "b": False})
    params = {"w": X, "b": X}
    plain, _ = after(optim.adam(1.0), params, params)
    found, _ = after(decayed, params, params)
    np.testing.assert_allclose(found["w"], plain["w"] - 0.5 * X, rtol=1e-6)
    np.testing.assert_array_equal(found["b"], plain["b"])


def test_none_is_no_leaf() -> None:
    params = {"w": X, "frozen": None}
    found, _ = after(optim.adamw(0.1), params, params)
    assert found["frozen"] is None


# ------------------------------------------------------------------------------------------- around others


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
def test_k_gradients_make_one_step_of_their_mean(is_compiled: bool) -> None:
    rng = np.random.default_rng(0)
    grads = rng.standard_normal((6, 5)).astype(np.float32)
    whole, inner = optim.multi_steps(optim.adam(0.1), 3), optim.adam(0.1)
    state, its = whole.init(grads[0]), inner.init(grads[0])
    update = rlx.jit(whole.update) if is_compiled else whole.update
    for i, g in enumerate(grads):
        found, state = update(g, state)
        if i % 3 < 2:
            assert not np.any(found)
        else:
            wanted, its = inner.update(grads[i - 2 : i + 1].mean(axis=0), its)
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert (state.mini_step, state.gradient_step) == (0, 2)


def test_an_update_that_is_not_finite_is_left_out() -> None:
    whole = optim.apply_if_finite(optim.trace(0.5), 2)
    state = whole.init(X)
    update = rlx.jit(whole.update)
    bad = np.float32([np.inf, 1])
    _, state = update(X, state)
    for row in (1, 2):
        found, state = update(bad, state)
        assert not np.any(found)
        assert (state.notfinite_count, state.total_notfinite, bool(state.last_finite)) == (row, row, False)
    np.testing.assert_array_equal(state.inner_state.trace, X)
    found, passed = update(bad, state)
    assert np.isinf(found[0]), "the third in a row passes"
    found, state = update(X, state)
    np.testing.assert_array_equal(found, 1.5 * X)
    assert (state.notfinite_count, state.total_notfinite) == (0, 2)
    assert passed.notfinite_count == 3


def test_numbers_in_the_state_change_without_another_program() -> None:
    whole = optim.inject_hyperparams(optim.adamw)(0.5, weight_decay=0.0)
    update = rlx.jit(whole.update)
    state = whole.init(X)
    assert state.hyperparams["learning_rate"] == 0.5
    first, state = update(X, state, X)
    state.hyperparams["learning_rate"] = np.float32(0.25)
    second, _ = update(X, state, X)
    np.testing.assert_allclose(first, -0.5 * np.sign(X), rtol=1e-5)
    np.testing.assert_allclose(second, -0.25 * np.sign(X), rtol=1e-5)
    assert len(update.executables) == 1


def test_what_a_schedule_said_can_be_read() -> None:
    whole = optim.inject_hyperparams(optim.sgd)(optim.linear_schedule(1.0, 0.0, 4))
    for steps, rate in ((1, 1.0), (2, 0.75)):
        found, state = after(whole, X, steps=steps, is_compiled=True)
        assert state.hyperparams["learning_rate"] == rate
        np.testing.assert_array_equal(found, -rate * X)


def test_a_scale_grows_after_good_steps_and_shrinks_after_bad_ones() -> None:
    whole = optim.dynamic_loss_scale(
        optim.sgd(1.0), initial_scale=8.0, growth_interval=2, max_scale=16.0, min_scale=4.0
    )
    update, state = rlx.jit(whole.update), whole.init(X)
    seen = []
    for is_good in (True, True, True, True, False, False, False, True):
        grads = X * whole.loss_scale(state) if is_good else np.float32([np.nan, 1])
        found, state = update(grads, state)
        seen.append(float(state.scale))
        np.testing.assert_array_equal(found, -X if is_good else 0 * X)
    assert seen == [8, 16, 16, 16, 8, 4, 4, 4]
    assert (state.skipped, state.good_steps) == (3, 1)


def test_a_static_scale_stays_and_skips_bad_steps() -> None:
    whole = optim.static_loss_scale(optim.sgd(1.0), 8.0)
    update, state = rlx.jit(whole.update), whole.init(X)
    for is_good in (True, False, True):
        grads = X * whole.loss_scale(state) if is_good else np.float32([np.inf, 1])
        found, state = update(grads, state)
        assert state.scale == 8
        np.testing.assert_array_equal(found, -X if is_good else 0 * X)
    assert state.skipped == 1


# ------------------------------------------------------------------------------------------- mistakes


MISTAKES: dict[str, tuple[Any, type[RlxError], str]] = {
    "a factory": (lambda: optim.chain(optim.adam), ConfigError, r"chain: takes a transformation .* not <function"),
    "no transformation": (lambda: optim.masked(3, True), ConfigError, "masked: takes a transformation"),
    "a decay of 1": (lambda: optim.adam(0.1, b1=1.0), ConfigError, r"adam: b1 must be in \[0, 1\), not 1.0"),
    "a negative bound": (lambda: optim.clip(-1.0), ConfigError, r"clip: max_delta must be above 0"),
    "no steps": (lambda: optim.multi_steps(optim.sgd(0.1), 0), ConfigError, "every_k must be an integer of at least 1"),
    "integers": (lambda: optim.adam(0.1).init({"n": np.int32([1])}), DtypeError, "n is i32, and only real"),
    "another structure": (
        lambda: optim.adam(0.1).update({"b": X}, optim.adam(0.1).init({"a": X})),
        ShapeError,
        "adam: the arguments have another structure",
    ),
    "a state of another chain": (
        lambda: optim.chain(optim.scale(1.0)).update(X, ()),
        ConfigError,
        "chain: a state of 0 parts for 1 transformations",
    ),
    "no parameters": (
        lambda: optim.adamw(0.1).update(X, optim.adamw(0.1).init(X)),
        WrongInputCountError,
        "add_decayed_weights: needs the parameters",
    ),
    "a mask of another structure": (
        lambda: optim.masked(optim.scale(1.0), {"a": True}).init({"b": X}),
        ShapeError,
        "masked: .* does not lie over",
    ),
    "a mask of numbers": (
        lambda: optim.masked(optim.scale(1.0), {"a": 1}).init({"a": X}),
        ConfigError,
        "masked: 1 is not what is said of a leaf",
    ),
    "an unknown label": (
        lambda: optim.multi_transform({"fast": optim.sgd(0.1)}, {"a": "fsat"}).init({"a": X}),
        ConfigError,
        "no transformation for the label 'fsat'",
    ),
    "an unknown argument": (lambda: optim.inject_hyperparams(optim.sgd)(rate=1), ConfigError, "inject_hyperparams: "),
    "scales out of order": (
        lambda: optim.dynamic_loss_scale(optim.sgd(0.1), initial_scale=0.5),
        ConfigError,
        "must be above 0 and in this order",
    ),
    "a static scale of 0": (
        lambda: optim.static_loss_scale(optim.sgd(0.1), 0.0),
        ConfigError,
        "must be above 0 and finite in f32, not 0.0",
    ),
    "a factor of 1": (lambda: optim.dynamic_loss_scale(optim.sgd(0.1), factor=1.0), ConfigError, "must be above 1"),
    "a decay rate of adafactor": (lambda: optim.adafactor(decay_rate=2.0), ConfigError, "decay_rate must be above 0"),
    "an interval": (lambda: optim.cosine_decay_schedule(1.0, 0), ConfigError, "decay_steps must be an integer"),
    "a warm-up without end": (
        lambda: optim.warmup_cosine_decay_schedule(0.0, 1.0, 10, 10),
        ConfigError,
        "decay_steps 10 counts the 10 of the warm-up",
    ),
    "boundaries": (
        lambda: optim.join_schedules([optim.constant_schedule(1.0)] * 3, [5, 5]),
        ConfigError,
        "boundaries must rise",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_said(name: str) -> None:
    make, error, says = MISTAKES[name]
    with pytest.raises(error, match=says):
        make()
