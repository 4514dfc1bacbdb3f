"""The tour shows what really happens to its function at every stage."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest


@pytest.mark.medium
@pytest.mark.skipif(importlib.util.find_spec("rlx_gpu") is None, reason="the tour prints a kernel for GPUs")
def test_the_tour_prints_what_it_shows(run_page: Callable[[str], None]) -> None:
    run_page("tour.md")
