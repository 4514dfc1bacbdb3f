"""Schedules: functions from the number of steps before this one to a number, f32.

They consist of rlx functions, so they are evaluated inside a compiled step, or immediately for a Python number outside of one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_core.hints.keywords import checked_call
from rlx_core.ops.arguments import whole
from rlx_core.optim.numbers import Schedule

__all__ = [
    "constant_schedule",
    "cosine_decay_schedule",
    "exponential_decay",
    "join_schedules",
    "linear_schedule",
    "piecewise_constant_schedule",
    "polynomial_schedule",
    "warmup_cosine_decay_schedule",
]


def _steps(count: Any) -> Any:
    return rlx.astype(count, rlx.f32)


@checked_call
def constant_schedule(value: float) -> Schedule:
    """A constant."""
    return lambda count: np.float32(value)


@checked_call
def polynomial_schedule(
    init_value: float, end_value: float, power: float, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """A transition from one value to another along a power: `end + (init - end)·(1 - t)^power`, where t goes from 0 to 1.

    Args:
        init_value: The value up to step `transition_begin`.
        end_value: The value from `transition_steps` steps later on.
        power: The exponent; 1 is linear.
        transition_steps, transition_begin: The length and the first step of the transition.
    """
    steps = whole("schedule: transition_steps", transition_steps, least=1)

    def schedule(count: Any) -> Any:
        left = 1.0 - rlx.clip((_steps(count) - float(transition_begin)) / float(steps), 0.0, 1.0)
        return (init_value - end_value) * (left if power == 1 else rlx.pow(left, power)) + end_value

    return schedule


@checked_call
def linear_schedule(init_value: float, end_value: float, transition_steps: int, transition_begin: int = 0) -> Schedule:
    """A linear transition from one value to another; see `polynomial_schedule`.

    >>> linear_schedule(0.0, 1.0, 4)(1)
    Array(0.25, dtype=float32)
    """
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


@checked_call
def cosine_decay_schedule(init_value: float, decay_steps: int, alpha: float = 0.0, exponent: float = 1.0) -> Schedule:
    """A transition from a value to `alpha` times it along half a cosine, to the power `exponent`.

    Source:
        Loshchilov, Hutter 2017, "SGDR: Stochastic Gradient Descent with Warm Restarts", arXiv:1608.03983, equation 5.
    """
    steps = whole("cosine_decay_schedule: decay_steps", decay_steps, least=1)

    def schedule(count: Any) -> Any:
        part = rlx.clip(_steps(count) / float(steps), 0.0, 1.0)
        falling = 0.5 * (1.0 + rlx.cos(math.pi * part))
        return init_value * ((1.0 - alpha) * (falling if exponent == 1 else rlx.pow(falling, exponent)) + alpha)

    return schedule


@checked_call
def warmup_cosine_decay_schedule(
    init_value: float,
    peak_value: float,
    warmup_steps: int,
    decay_steps: int,
    end_value: float = 0.0,
    exponent: float = 1.0,
) -> Schedule:
    """A line up to a peak, then half a cosine down.

    Args:
        init_value, peak_value, end_value: At the start, after `warmup_steps`, and from `decay_steps` on.
        warmup_steps: The length of the linear part.
        decay_steps: The length of both parts together.
        exponent: The exponent of the cosine.

    Raises:
        ConfigError: `decay_steps` is not more than `warmup_steps`, or the peak is 0.
    """
    if not decay_steps > warmup_steps:
        raise ConfigError(
            f"warmup_cosine_decay_schedule: decay_steps {decay_steps} counts the {warmup_steps} of the warm-up, "
            "and must be more"
        )
    if peak_value == 0:
        raise ConfigError("warmup_cosine_decay_schedule: peak_value must not be 0")
    down = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, end_value / peak_value, exponent)
    if warmup_steps == 0:
        return down
    return join_schedules([linear_schedule(init_value, peak_value, warmup_steps), down], [warmup_steps])


@checked_call
def exponential_decay(
    init_value: float,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | None = None,
) -> Schedule:
    """`init_value·decay_rate^((step - transition_begin)/transition_steps)`.

    Args:
        init_value: Up to step `transition_begin`.
        transition_steps: The number of steps in which the rate applies once.
        decay_rate: Above 0; above 1 the value grows.
        transition_begin: The first step of the decay.
        staircase: Whether the exponent is rounded down.
        end_value: The bound of the value, or none.
    """
    steps = whole("exponential_decay: transition_steps", transition_steps, least=1)
    if not decay_rate > 0:
        raise ConfigError(f"exponential_decay: decay_rate must be above 0, not {decay_rate!r}")
    bound = rlx.maximum if decay_rate < 1 else rlx.minimum

    def schedule(count: Any) -> Any:
        times = rlx.maximum(_steps(count) - float(transition_begin), 0.0) / float(steps)
        value = init_value * rlx.exp(math.log(decay_rate) * (rlx.floor(times) if staircase else times))
        return value if end_value is None else bound(value, end_value)

    return schedule


@checked_call
def piecewise_constant_schedule(
    init_value: float, boundaries_and_scales: Mapping[int, float] | None = None
) -> Schedule:
    """A value that is multiplied, from each boundary on, by the factor of that boundary."""
    rows = sorted((boundaries_and_scales or {}).items())
    values = [init_value]
    for _, factor in rows:
        values.append(values[-1] * factor)

    def schedule(count: Any) -> Any:
        value: Any = np.float32(values[0])
        for (boundary, _), following in zip(rows, values[1:], strict=True):
            value = rlx.where(rlx.asarray(count) >= boundary, np.float32(following), value)
        return value

    return schedule


@checked_call
def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """Schedules one after another, each counting from its own start.

    Raises:
        ConfigError: There is not one boundary fewer than schedules, or the boundaries do not rise.
    """
    if len(boundaries) != len(schedules) - 1:
        raise ConfigError(f"join_schedules: {len(schedules)} schedules have one boundary fewer, not {len(boundaries)}")
    if sorted(set(boundaries)) != list(boundaries):
        raise ConfigError(f"join_schedules: boundaries must rise, not {list(boundaries)}")

    def schedule(count: Any) -> Any:
        value = schedules[0](count)
        for start, following in zip(boundaries, schedules[1:], strict=True):
            value = rlx.where(rlx.asarray(count) >= start, following(rlx.asarray(count) - start), value)
        return value

    return schedule
