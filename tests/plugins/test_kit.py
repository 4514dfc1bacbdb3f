"""The public names for plugins are frozen, and the pages that show how to write one use them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rlx_core import kit

ROOT = Path(__file__).parents[2]
NAMES = Path(__file__).with_name("kit_names.txt").read_text(encoding="utf-8").split()
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))


def imports_of(page: Path) -> Iterator[tuple[str, str]]:
    """The module and the name of every import in the programs of a page."""
    for module, names in re.findall(
        r"^(?:>>> )?from ([\w.]+) import (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE
    ):
        yield from ((module, name.strip()) for name in names.split(","))


def test_the_names_of_the_kit_are_those_of_the_list() -> None:
    """A name that goes needs a deprecation first: see docs/decisions/0056-plugin-api-stability.md."""
    assert sorted(kit.__all__) == NAMES
    assert all(hasattr(kit, name) for name in NAMES)


def test_pages_import_what_the_kit_has_from_the_kit() -> None:
    public = {"rlx_core", "rlx_core.kit", "rlx_core.ops"}
    elsewhere = [
        f"{page.name}: {module}.{name}"
        for page in PAGES
        for module, name in imports_of(page)
        if module.startswith("rlx_core") and name in NAMES and module not in public
    ]
    assert elsewhere == []
