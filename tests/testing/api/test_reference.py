"""The API reference states the functions that exist."""

from __future__ import annotations

import pytest

from rlx_core.public import FUNCTIONS
from rlx_core.testing.api import reference


def test_the_pages_are_what_would_be_written(pytestconfig: pytest.Config) -> None:
    """`make stubs` writes them."""
    if pytestconfig.getoption("--update"):
        reference.main(["--update"])
    assert [path.name for path in reference.stale()] == []


def test_every_function_of_arrays_has_a_row_and_every_row_a_summary() -> None:
    page = reference.pages()[reference.FOLDER / "rlx.md"]
    rows = {line[3:].partition("(")[0]: line for line in page.splitlines() if line.startswith("| `")}
    assert set(FUNCTIONS) <= set(rows)
    assert [name for name, line in rows.items() if line.endswith("|  |")] == []


def test_a_default_that_is_long_is_elided_and_a_bar_is_escaped() -> None:
    def function(x, places=frozenset((1, 2)), size=(1, 2)):
        """What |x| is."""

    (row,) = reference._rows({"function": function})
    assert row == "| `function(x, places=…, size=(1, 2))` | What \\|x\\| is. |"
