"""What docstrings show is what is printed."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest

import rlx_core as rlx


@pytest.mark.parametrize(
    "module", ["optim.transformation", "optim.optimisers", "optim.schedules", "functions.training"], ids=str
)
def test_the_examples_of_a_module(module: str) -> None:
    found = importlib.import_module(f"rlx_core.{module}")
    result = doctest.testmod(found, extraglobs={"np": np, "rlx": rlx})
    assert result.attempted
    assert not result.failed
