"""How tables look: nothing is cut, nothing is taken for markup, and a report is told in three of them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rlx_core.cli.tables import cell, counted, facts, listing, report_tables
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.types import spec
from rlx_core.pipeline.compile import compile_graph
from rlx_core.plugins import PluginHost


def printed(*parts: object, width: int = 80) -> str:
    """As a console with markup prints them, which is what `rlx demo` uses."""
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


@pytest.mark.parametrize("words", ["f32[batch, 64]", "[bold]x", "a\\[b]", ":smile:"])
def test_types_are_not_markup(words) -> None:
    assert words in printed(listing(("type",), [(words,)]))
    assert words in printed(facts([("type", words)]))
    assert words in printed(cell(words))


def test_long_words_are_folded_and_never_cut() -> None:
    path = "/a/very/long/path/" * 8
    text = printed(listing(("name", "file"), [("x", path)]), width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert path in "".join(line.strip().removeprefix("x").strip() for line in text.splitlines())


def test_facts_without_content_are_left_out() -> None:
    assert printed(facts([("why", ""), ("mend", "this")])).strip() == "mend  this"


def test_counts_have_their_singular() -> None:
    assert counted({"ops": 2, "passes": 1, "backends": 1}) == "2 ops, 1 pass, 1 backend"


@pytest.mark.parametrize(("dims", "arena"), [("[4, 8]", "B, instead of"), ("[batch, 8]", "known (batch)")])
def test_a_report_says_what_ran_where(acme, dims, arena) -> None:
    host = PluginHost(acme.entries)
    builder = Builder("main")
    x = builder.input("x", spec(f"f32{dims}"))
    with building(builder):
        y = host.load("ops", "acme.double")()(x)
        graph = builder.finish([y])
    report = compile_graph(graph, target="toy", host=host).report
    text = printed(*report_tables(report))
    assert text.startswith("\nmain on toy\n")
    assert max(map(len, text.splitlines())) <= 80
    assert arena in text
    rows = [line.split() for line in text.splitlines()]
    assert ["acme.double", "double_eight", "acme", "1"] in rows
    assert not any(row[:1] == ["rlx.legalize"] for row in rows), "it replaced nothing"
    assert any(row[:1] == ["and"] and row[-3:] == ["--all", "lists", "them"] for row in rows)
    every = [line.split() for line in printed(*report_tables(report, is_complete=True)).splitlines()]
    assert any(row[:1] == ["rlx.legalize"] for row in every)
    assert not any(row[:1] == ["and"] for row in every)
