"""The page on miscompiles is true: its programs are run, in order, and print what it says."""

from __future__ import annotations

import doctest
import importlib.util
import re
from pathlib import Path

import pytest

from rlx_core.cli.commands import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "debug-a-miscompile.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.skipif(importlib.util.find_spec("rlx_cpu") is None, reason="the page compiles for the CPU")
def test_the_programs_of_the_page_do_what_it_says() -> None:
    source = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    page = doctest.DocTestParser().get_doctest(source, {}, PAGE.name, str(PAGE), 0)
    report: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(page, out=report.append)
    assert results.attempted > 30
    assert not results.failed, "".join(report)


def test_every_command_and_link_of_the_page_exists() -> None:
    asked = {words.split()[0] for words in re.findall(r"`rlx ([a-z][^`]*)`", TEXT)}
    assert asked
    assert asked <= {spec.name for spec in COMMANDS}
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
