"""Every decision page has one form, and the table of decisions lists it by number, title and former file name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.every_case

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
SECTIONS = ["Context", "Decision", "Consequences", "Alternatives"]
MAX_LINES = 80
MAX_TITLE_LENGTH = 72  # characters, as for commit titles

NAME = re.compile(r"(\d{4})-[a-z0-9]+(-[a-z0-9]+)*\.md")
TITLE = re.compile(r"# (\d{4}): (\S.*)")
ROW = re.compile(r"\| \[(\d{4})\]\(([^)]+)\) \| ([^|]+) \| (?:`([^`|]+)`)? \|")

ROWS = [
    match.groups()
    for line in (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    if (match := ROW.fullmatch(line))
]


def title_of(page: Path) -> str:
    match = TITLE.fullmatch(page.read_text(encoding="utf-8").splitlines()[0])
    assert match, f"{page.name}: the first line is not `# NNNN: Subject`"
    return match[2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
class TestPage:
    def test_file_name_is_number_and_words(self, page: Path) -> None:
        assert NAME.fullmatch(page.name)

    def test_title_has_the_number_and_is_short(self, page: Path) -> None:
        first = page.read_text(encoding="utf-8").splitlines()[0]
        match = TITLE.fullmatch(first)
        assert match
        assert match[1] == page.name[:4]
        assert len(first.removeprefix("# ")) <= MAX_TITLE_LENGTH

    def test_page_has_the_four_sections_in_order_and_text_in_each(self, page: Path) -> None:
        _, *parts = re.split(r"^## (.+)\n", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert parts[0::2] == SECTIONS
        assert all(text.strip() for text in parts[1::2])

    def test_page_is_at_most_80_lines(self, page: Path) -> None:
        assert len(page.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_table_lists_every_page_once_in_order() -> None:
    assert len(PAGES) > 50
    assert [(number, file, title) for number, file, title, _ in ROWS] == [
        (page.name[:4], page.name, title_of(page)) for page in PAGES
    ]


def test_former_file_names_are_unique_and_keep_their_numbers() -> None:
    former = [(number, name) for number, _, _, name in ROWS if name]
    assert len(former) > 40
    assert len({name for _, name in former}) == len(former)
    assert all(name.startswith(f"{number}-") and NAME.fullmatch(name) for number, name in former)
    assert not any((FOLDER / name).exists() for _, name in former)
