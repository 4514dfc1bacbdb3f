"""The page on the loop language is true: its blocks print what it shows, and the text that it shows is in the language."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "loop-language.md"


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llvmlite", "rlx_gpu")),
    reason="the page prints native code and kernels for GPUs: llvmlite or rlx-gpu is not installed",
)
def test_the_page_prints_what_it_shows(run_page: Callable[[str], None]) -> None:
    run_page("loop-language.md")


def test_every_word_that_begins_a_value_is_in_the_grammar() -> None:
    grammar = re.search(r"```ebnf\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert grammar is not None
    for word in ("kernel", "operand", "result", "load", "const", "index", "bound", "checked", "over", "store"):
        assert f'"{word}"' in grammar[1]
