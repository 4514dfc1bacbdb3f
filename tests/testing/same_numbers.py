"""Random numbers of a test that do not depend on the tests before it; a module imports the fixture with them."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(0)
_INITIAL = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Begin the sequence of `RNG` again."""
    RNG.bit_generator.state = _INITIAL


def numbers(*shape: int, rng: np.random.Generator = RNG) -> np.ndarray:
    """Return f32 numbers of the normal distribution. Constants of a module need a generator of its own."""
    return rng.standard_normal(shape).astype(np.float32)
