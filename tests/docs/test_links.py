"""Every link of every page leads somewhere: to a file of the repository and, after `#`, to a heading in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.every_case

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("plugins/*/*.md")])

CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def links(page: Path) -> list[str]:
    return [link for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))) if "://" not in link]


def anchor(heading: str) -> str:
    """How a heading is called in a link: lower case, words joined by hyphens, punctuation left out."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        place, _, part = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), f"{link} leads to {target}, which is not there"
        assert target.is_relative_to(ROOT), f"{link} leads out of the repository"
        if part:
            headings = {anchor(h) for h in HEADING.findall(target.read_text(encoding="utf-8"))}
            assert part in headings, f"{link}: {target.name} has no such heading"


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
        for target in targets:
            waiting += [target] if target.suffix == ".md" else sorted(target.glob("*.md")) if target.is_dir() else []

    assert set(ROOT.glob("docs/**/*.md")) - reached == set()
