"""The page that lists what is compared says what the table says; `--update` prints it afresh."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest
import torch

from .peers.page import page
from .peers.table import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "peers.md"


def test_the_page_is_the_table(request: pytest.FixtureRequest) -> None:
    text = page(torch.__version__.partition("+")[0], jax.__version__)
    if request.config.getoption("--update"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "python -m pytest tests/oracle/test_peers_page.py --update prints it afresh"


def test_rows_have_names_of_their_own_and_reasons() -> None:
    rows = [row for family in FAMILIES for row in family.rows]
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert row.torch is not None or row.jax is not None, row.name
        assert row.slack <= 64 or row.why, f"{row.name} has more slack than others, and does not say why"
