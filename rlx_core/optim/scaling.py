"""Transformations that scale gradients: by a number, by a schedule, and by statistics of earlier gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import rlx_core as rlx
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import DType
from rlx_core.optim.numbers import Rate, Schedule, debiasing, expect_fraction, expect_rate
from rlx_core.optim.transformation import GradientTransformation, stateless
from rlx_core.optim.trees import each, next_count, zeros_like

__all__ = [
    "AdamState",
    "CenteredState",
    "EmaState",
    "LionState",
    "MeanSquareState",
    "ScheduleState",
    "TraceState",
    "ema",
    "scale",
    "scale_by_adam",
    "scale_by_learning_rate",
    "scale_by_lion",
    "scale_by_rms",
    "scale_by_rss",
    "scale_by_schedule",
    "scale_by_stddev",
    "trace",
]


class ScheduleState(NamedTuple):
    """The number of steps of a schedule, i32."""

    count: Any


class TraceState(NamedTuple):
    """The decaying sum of gradients, shaped like the parameters."""

    trace: Any


class EmaState(NamedTuple):
    """The moving average before debiasing, and the number of steps."""

    count: Any
    ema: Any


class AdamState(NamedTuple):
    """Steps taken, i32, and the averages of gradients and of their squares."""

    count: Any
    mu: Any
    nu: Any


class LionState(NamedTuple):
    """The average of gradients."""

    mu: Any


class MeanSquareState(NamedTuple):
    """The average, or the sum, of squared gradients."""

    nu: Any


class CenteredState(NamedTuple):
    """The averages of gradients and of their squares."""

    mu: Any
    nu: Any


@checked_call
def scale(factor: Any) -> GradientTransformation:
    """Gradients times a number."""
    return stateless(lambda grads, params: each("scale", lambda g: g * factor, grads))


@checked_call
def scale_by_schedule(schedule: Schedule) -> GradientTransformation:
    """Gradients times the value of `schedule` for the number of steps before this one."""

    def update(grads: Any, state: ScheduleState, params: Any = None) -> tuple[Any, ScheduleState]:
        factor = schedule(state.count)
        return each("scale_by_schedule", lambda g: g * factor, grads), ScheduleState(next_count(state.count))

    return GradientTransformation(lambda params: ScheduleState(np.int32(0)), update)


@checked_call
def scale_by_learning_rate(learning_rate: Rate) -> GradientTransformation:
    """Gradients times a negative rate: a number, an array, or a schedule."""
    if not callable(learning_rate):
        return scale(-expect_rate(learning_rate))
    return scale_by_schedule(lambda count: -learning_rate(count))


@checked_call
def trace(decay: float, nesterov: bool = False) -> GradientTransformation:
    """Momentum: `t = g + decay·t`; with `nesterov`, `g + decay·t` of that new `t` (Sutskever 2013)."""
    expect_fraction("trace: decay", decay)

    def update(grads: Any, state: TraceState, params: Any = None) -> tuple[Any, TraceState]:
        new = each("trace", lambda g, t: g + decay * t, grads, state.trace)
        return each("trace", lambda g, t: g + decay * t, grads, new) if nesterov else new, TraceState(new)

    return GradientTransformation(lambda params: TraceState(zeros_like(params)), update)


@checked_call
def ema(decay: float, debias: bool = True, accumulator_dtype: DType | str | None = None) -> GradientTransformation:
    """An exponential moving average of the gradients: `e = decay·e + (1 - decay)·g`.

    It can also average parameters: `average, state = ema(0.999).update(params, state)` after each step.

    Args:
        decay: In [0, 1).
        debias: Whether the average is divided by `1 - decay**steps`, because it starts at 0.
        accumulator_dtype: The dtype of the average; by default the dtype of the computation.
    """
    expect_fraction("ema: decay", decay)

    def update(grads: Any, state: EmaState, params: Any = None) -> tuple[Any, EmaState]:
        count = next_count(state.count)
        new = each("ema", lambda g, e: decay * e + (1 - decay) * g, grads, state.ema)
        passed = each("ema", debiasing(decay, count), new) if debias else new
        return passed, EmaState(count, _kept(new, accumulator_dtype))

    return GradientTransformation(lambda params: EmaState(np.int32(0), zeros_like(params, accumulator_dtype)), update)


@checked_call
def scale_by_adam(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: DType | str | None = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """`m / (√(v + eps_root) + eps)` of the debiased averages m of gradients and v of their squares.

    Args:
        b1, b2: Decays of m and v, in [0, 1).
        eps, eps_root: Added outside and inside the root.
        mu_dtype: The storage dtype of m; by default the dtype of the computation, f32 for 16-bit parameters.
        nesterov: Whether m is evaluated one step ahead (Dozat 2016).

    Source:
        Kingma, Ba 2015, "Adam: A Method for Stochastic Optimization", arXiv:1412.6980, algorithm 1.
    """
    expect_fraction("adam: b1", b1)
    expect_fraction("adam: b2", b2)

    def update(grads: Any, state: AdamState, params: Any = None) -> tuple[Any, AdamState]:
        count = next_count(state.count)
        mu = each("adam", lambda g, m: b1 * m + (1 - b1) * g, grads, state.mu)
        nu = each("adam", lambda g, v: b2 * v + (1 - b2) * (g * g), grads, state.nu)
        m_hat, v_hat = debiasing(b1, count), debiasing(b2, count)
        if nesterov:
            ahead = debiasing(b1, next_count(count))
            m_bar = each("adam", lambda g, m: b1 * ahead(m) + (1 - b1) * m_hat(g), grads, mu)
        else:
            m_bar = each("adam", m_hat, mu)
        updates = each("adam", lambda m, v: m / (rlx.sqrt(v_hat(v) + eps_root) + eps), m_bar, nu)
        return updates, AdamState(count, _kept(mu, mu_dtype), nu)

    def init(params: Any) -> AdamState:
        return AdamState(np.int32(0), zeros_like(params, mu_dtype), zeros_like(params))

    return GradientTransformation(init, update)


@checked_call
def scale_by_lion(b1: float = 0.9, b2: float = 0.99, mu_dtype: DType | str | None = None) -> GradientTransformation:
    """The sign of `b1·m + (1 - b1)·g`, while m is averaged with `b2`.

    Source:
        Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", arXiv:2302.06675, algorithm 2.
    """
    expect_fraction("lion: b1", b1)
    expect_fraction("lion: b2", b2)

    def update(grads: Any, state: LionState, params: Any = None) -> tuple[Any, LionState]:
        # The update direction m + (1 - b1)·(g - m) is computed as the new m plus the remaining difference, so that one kernel,
        # fused after the product that computes g, writes both.
        away = each("lion", lambda g, m: g - m, grads, state.mu)
        mu = each("lion", lambda m, d: m + (1 - b2) * d, state.mu, away)
        updates = each("lion", lambda m, d: rlx.sign(m + (b2 - b1) * d), mu, away)
        return updates, LionState(_kept(mu, mu_dtype))

    return GradientTransformation(lambda params: LionState(zeros_like(params, mu_dtype)), update)


@checked_call
def scale_by_rms(decay: float = 0.9, eps: float = 1e-8, initial_scale: float = 0.0) -> GradientTransformation:
    """`g / √(v + eps)` of the average v of squared gradients, which starts at `initial_scale`.

    Source:
        Tieleman, Hinton 2012, "Neural Networks for Machine Learning", lecture 6.5.
    """
    expect_fraction("rmsprop: decay", decay)

    def update(grads: Any, state: MeanSquareState, params: Any = None) -> tuple[Any, MeanSquareState]:
        nu = each("rmsprop", lambda g, v: decay * v + (1 - decay) * (g * g), grads, state.nu)
        return each("rmsprop", lambda g, v: g * rlx.rsqrt(v + eps), grads, nu), MeanSquareState(nu)

    return GradientTransformation(lambda params: MeanSquareState(_filled(params, initial_scale)), update)


@checked_call
def scale_by_stddev(decay: float = 0.9, eps: float = 1e-8, initial_scale: float = 0.0) -> GradientTransformation:
    """`g / √(v - m² + eps)` of the averages m of gradients and v of their squares (Graves 2013, arXiv:1308.0850)."""
    expect_fraction("rmsprop: decay", decay)

    def update(grads: Any, state: CenteredState, params: Any = None) -> tuple[Any, CenteredState]:
        mu = each("rmsprop", lambda g, m: decay * m + (1 - decay) * g, grads, state.mu)
        nu = each("rmsprop", lambda g, v: decay * v + (1 - decay) * (g * g), grads, state.nu)
        updates = each("rmsprop", lambda g, m, v: g * rlx.rsqrt(v - m * m + eps), grads, mu, nu)
        return updates, CenteredState(mu, nu)

    return GradientTransformation(
        lambda params: CenteredState(zeros_like(params), _filled(params, initial_scale)), update
    )


@checked_call
def scale_by_rss(initial_accumulator_value: float = 0.1, eps: float = 1e-7) -> GradientTransformation:
    """`g / √(s + eps)` of the sum s of all squared gradients, and 0 where s is 0.

    Source:
        Duchi, Hazan, Singer 2011, "Adaptive Subgradient Methods", JMLR 12, section 1.1.
    """

    def update(grads: Any, state: MeanSquareState, params: Any = None) -> tuple[Any, MeanSquareState]:
        nu = each("adagrad", lambda g, s: s + g * g, grads, state.nu)
        updates = each("adagrad", lambda g, s: rlx.where(s > 0, g * rlx.rsqrt(s + eps), 0.0), grads, nu)
        return updates, MeanSquareState(nu)

    return GradientTransformation(lambda params: MeanSquareState(_filled(params, initial_accumulator_value)), update)


def _filled(params: Any, value: float) -> Any:
    return each("init", lambda x: rlx.full_like(x, value), params)


def _kept(tree: Any, target: DType | str | None) -> Any:
    """Return the state in the requested dtype."""
    return tree if target is None else each("state", lambda x: rlx.astype(x, target, copy=False), tree)
