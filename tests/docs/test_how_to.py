"""The pages on how to extend rlx are programs that work."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize("page", ["add-an-op", "add-a-pass", "add-a-backend"])
def test_the_page_prints_what_it_shows(run_page: Callable[[str], None], page: str) -> None:
    run_page(f"how-to/{page}.md")
