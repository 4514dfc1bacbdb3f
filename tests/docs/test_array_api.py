"""The page about the Python Array API shows what happens, and names what is absent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import TraceError

PAGE = Path(__file__).parents[2] / "docs" / "array-api.md"


def test_the_page_prints_what_it_shows(run_page: Callable[[str], None]) -> None:
    run_page("array-api.md")


@pytest.mark.parametrize("name", ["nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values"])
def test_what_depends_on_the_data_is_refused_in_a_program_and_listed(name: str) -> None:
    with pytest.raises(TraceError, match=f"{name}: how many elements it finds"):
        rlx.jit(getattr(rlx, name))(np.ones(3))
    assert f"`{name}`" in PAGE.read_text(encoding="utf-8")
