"""The words in which kernels report an index outside, as the host reads them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rlx_core.codegen.faults import LAST_PLACE, NO_FAULT, SITE_WORDS, Report, first_error, put_report, report_of
from rlx_core.codegen.places import Fault

REPORTS = [(3, -1), (2, 1 << 62), (7, 0), (5, -(1 << 63))]


def fresh(sites: int = 1) -> np.ndarray:
    return np.full(sites * SITE_WORDS, NO_FAULT, np.uint32)


@pytest.mark.parametrize("order", list(itertools.permutations(REPORTS)))
def test_the_first_place_stays_with_its_own_index_whatever_the_order(order: tuple[tuple[int, int], ...]) -> None:
    words = fresh()
    for place, index in order:
        put_report(words, place, index)
    assert report_of(words) == Report(2, 1 << 62)


def test_nothing_reported_is_nothing() -> None:
    assert report_of(fresh()) is None
    assert first_error(fresh(3), [Fault("{}")] * 3) is None


def test_an_index_beyond_the_last_place_is_not_known() -> None:
    words = fresh()
    put_report(words, LAST_PLACE, 4)
    assert report_of(words) == Report(LAST_PLACE, None)
    error = first_error(words, [Fault("take: index {} is outside an axis of 2 elements")])
    assert error is not None
    assert "index (not known) is outside" in str(error)


def test_of_several_sites_the_first_is_raised() -> None:
    words = fresh(3)
    for site in (2, 1):
        put_report(words[site * SITE_WORDS : (site + 1) * SITE_WORDS], 9 - site, -site)
    error = first_error(words, [Fault(f"{name} {{}}") for name in "abc"])
    assert error is not None
    assert str(error).splitlines()[0].endswith("b -1")
    assert "point 8 of the kernel" in str(error)
