"""The table of what is handled, as the README shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="pip install 'rlx-torch[torch]'")

from rlx_torch.aten.table import TABLE  # torch first: without it there is nothing to test
from rlx_torch.coverage import REASONS, core_overloads, report

README = Path(__file__).parents[1] / "README.md"


def test_the_readme_shows_what_is_handled() -> None:
    shown = re.search(r"<!-- coverage -->\n(.*?)<!-- end -->", README.read_text(encoding="utf-8"), re.S)
    assert shown is not None
    assert shown[1].strip() == report()


def test_every_core_op_is_handled_or_refused_for_a_reason() -> None:
    core = set(core_overloads())
    assert core - TABLE.keys() == core & REASONS.keys()
    assert len(core & TABLE.keys()) >= 185
