"""The pages on how to extend rlx are programs that work."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rlx_core.contributions import KINDS
from rlx_core.contributions.records import RULE_KINDS

pytestmark = pytest.mark.every_case

DOCS = Path(__file__).parents[2] / "docs"
HAS_NATIVE_CODE = all(importlib.util.find_spec(name) is not None for name in ("rlx_cpu", "llvmlite"))


PAGES = ["how-to/add-an-op", "how-to/add-a-pass", "how-to/add-a-backend", "how-to/what-a-plugin-has", "types"]


@pytest.mark.parametrize("page", PAGES)
def test_the_page_prints_what_it_shows(run_page: Callable[[str], None], page: str) -> None:
    run_page(f"{page}.md")


@pytest.mark.skipif(not HAS_NATIVE_CODE, reason="the page is about native code")
def test_a_native_kernel_is_added_as_the_page_says(run_page: Callable[[str], None]) -> None:
    run_page("how-to/add-a-native-kernel.md")


def test_every_kind_of_record_and_of_rule_has_an_example() -> None:
    page = (DOCS / "how-to" / "what-a-plugin-has.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^## (.*)$", page, re.MULTILINE))
    assert set(KINDS) <= {kind for heading in headings for kind in heading.split(" and ")}
    assert [spec.__name__ for spec in KINDS.values() if f"{spec.__name__}(" not in page] == []
    assert set(re.findall(r"^\| `(\w+)` \| `\(op", page, re.MULTILINE)) == set(RULE_KINDS)
