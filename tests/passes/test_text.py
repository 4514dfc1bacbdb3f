"""Passes as text: the graph before a pass and the graph after it, a file for each pass.

`pytest tests/passes/test_text.py --update` writes the second graph of each file; read the difference before you commit it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlx_core.ir.parse import parse_graph
from rlx_core.ir.text import print_graph
from rlx_core.ir.verify import IrStage, verify
from rlx_core.passes.engine.base import Context
from rlx_core.pipeline.contributed import HostOps
from rlx_core.plugins import default_host

FILES = sorted((Path(__file__).parent / "text").glob("*.txt"))
AFTER = "=== after ==="


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_pass_rewrites_the_first_graph_to_the_second(file: Path, pytestconfig: pytest.Config) -> None:
    host = default_host()
    before, expected = (part.strip() for part in file.read_text().split(AFTER))
    graph = parse_graph(before, HostOps(host))
    assert print_graph(graph).strip() == before, "the first graph is not written as rlx prints it"
    made: Any = host.registry().require("passes", file.stem).load.resolve()()
    after = made.run(graph, Context()).graph
    assert verify(after, IrStage.MIR) == []
    printed = print_graph(after).strip()
    if pytestconfig.getoption("--update"):
        file.write_text(f"{before}\n\n{AFTER}\n\n{printed}\n")
    else:
        assert printed == expected
        assert printed != before
