"""How one layer calls a later one: by a table that fills itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rlx_core.public import Registered


def test_who_fills_a_table_is_imported_when_something_is_missing_in_it(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "fills_a_table.py").write_text("import sys\nsys.modules['the_table'].table['answer'] = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    table: Registered[str, int] = Registered("fills_a_table")
    holder = type(sys)("the_table")
    vars(holder)["table"] = table
    monkeypatch.setitem(sys.modules, "the_table", holder)

    assert "fills_a_table" not in sys.modules
    assert table["answer"] == 42
    assert "fills_a_table" in sys.modules
    with pytest.raises(AssertionError, match="fills_a_table enter 'question'"):
        table["question"]


@pytest.mark.parametrize(
    ("modules", "code", "late"),
    [
        ("rlx_core.ir.graph", "str(Builder('main').finish([]))", "rlx_core.ir.text"),
        ("rlx_core.ir.graph", "Builder('main').finish([])._repr_html_()", "rlx_core.draw.pages"),
        ("rlx_core.transforms.engine", "SWEEPS['batch']", "rlx_core.transforms.batch"),
    ],
)
def test_what_a_layer_does_not_know_is_there_when_it_is_asked_for(modules: str, code: str, late: str) -> None:
    """With nothing else imported, as a program may."""
    program = f"import sys; from {modules} import *; {code}; print({late!r} in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "True"
