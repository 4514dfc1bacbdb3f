"""`rlx explain`: a page for every class of error."""

from __future__ import annotations

import inspect

import pytest

from rlx_core import errors
from rlx_core.cli.explain import pages

pytestmark = pytest.mark.every_case

CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.RlxError)]


@pytest.mark.parametrize("error", CLASSES, ids=lambda c: c.__name__)
def test_what_an_error_refers_to_has_a_page_with_its_documentation(rlx, error) -> None:
    page = rlx("explain", error.page, "--json").json
    assert set(page) == {"topic", "class", "catch", "text", "special_case_of", "special_cases"}
    assert (page["class"], page["text"]) == (error.__name__, inspect.getdoc(error))
    assert "RlxError" in page["catch"]


def test_a_topic_may_be_written_as_the_class(rlx) -> None:
    assert rlx("explain", "ShapeError").out == rlx("explain", "shape").out == rlx("explain", "shape-error").out
    assert "catch as  ShapeError, RlxError, ValueError" in rlx("explain", "shape").out


def test_special_cases_are_linked_both_ways(rlx) -> None:
    assert rlx("explain", "promotion", "--json").json["special_case_of"] == ["dtype"]
    assert "promotion" in rlx("explain", "dtype", "--json").json["special_cases"]


def test_without_a_topic_all_are_listed(rlx) -> None:
    ran = rlx("explain")
    assert max(map(len, ran.out.splitlines())) <= 80
    assert {each["topic"] for each in rlx("explain", "--json").json["topics"]} >= {c.page for c in CLASSES}


def test_no_two_errors_share_a_topic() -> None:
    topics = [page.page for page in pages() if page.__module__ == "rlx_core.errors"]
    assert len(topics) == len(set(topics))


def test_a_misspelt_topic_gets_the_nearest(rlx) -> None:
    ran = rlx("explain", "shpe")
    assert (ran.code, "did you mean `shape`?" in ran.err) == (2, True)


def test_it_works_while_every_other_plugin_is_broken(broken) -> None:
    assert broken("explain", "plugin").code == 0
