"""The tour shows what really happens to its function at every stage."""

from __future__ import annotations

from collections.abc import Callable


def test_the_tour_prints_what_it_shows(run_page: Callable[[str], None]) -> None:
    run_page("tour.md")
