"""Schedules, for Python numbers and inside of programs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import optim

CASES: dict[str, tuple[Any, dict[int, float]]] = {
    "constant": (optim.constant_schedule(0.5), {0: 0.5, 99: 0.5}),
    "linear": (optim.linear_schedule(1.0, 0.0, 10, 5), {0: 1, 5: 1, 10: 0.5, 15: 0, 99: 0}),
    "polynomial": (optim.polynomial_schedule(1.0, 0.0, 2, 10), {0: 1, 5: 0.25, 10: 0}),
    "cosine": (
        optim.cosine_decay_schedule(2.0, 8, alpha=0.5),
        {0: 2, 2: 1 + 0.5 * (1 + math.cos(math.pi / 4)), 4: 1.5, 8: 1, 99: 1},
    ),
    "warm-up and cosine": (
        optim.warmup_cosine_decay_schedule(0.0, 1.0, 4, 12, 0.25),
        {0: 0, 2: 0.5, 4: 1, 8: 0.625, 12: 0.25, 99: 0.25},
    ),
    "no warm-up": (optim.warmup_cosine_decay_schedule(0.0, 1.0, 0, 4), {0: 1, 2: 0.5, 4: 0}),
    "exponential": (optim.exponential_decay(1.0, 10, 0.5, 10), {0: 1, 10: 1, 15: 0.5**0.5, 30: 0.25}),
    "stairs": (optim.exponential_decay(1.0, 10, 0.5, staircase=True), {9: 1, 10: 0.5, 29: 0.25}),
    "exponential with an end": (optim.exponential_decay(1.0, 1, 0.5, end_value=0.1), {3: 0.125, 4: 0.1}),
    "growing to an end": (optim.exponential_decay(1.0, 1, 2.0, end_value=3.0), {1: 2, 2: 3}),
    "piecewise": (optim.piecewise_constant_schedule(8.0, {4: 0.5, 2: 0.25}), {1: 8, 2: 2, 3: 2, 4: 1}),
    "joined": (
        optim.join_schedules([optim.linear_schedule(0.0, 1.0, 4), optim.linear_schedule(1.0, 0.0, 4)], [10]),
        {2: 0.5, 9: 1, 10: 1, 12: 0.5, 14: 0},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_at_some_steps(name: str) -> None:
    schedule, values = CASES[name]
    compiled = rlx.jit(schedule)
    for step, value in values.items():
        for found in (schedule(step), schedule(np.int32(step)), compiled(np.int32(step))):
            assert np.asarray(found).dtype == np.float32
            np.testing.assert_allclose(found, value, rtol=1e-6, atol=1e-6)
