"""`rlx ops` and `rlx passes`: what there is, who provides it, and what is written."""

from __future__ import annotations

from operator import attrgetter

import pytest

import rlx_core
from rlx_core.ops import standard_ops
from rlx_core.ops.families import FAMILIES
from rlx_core.public import SPELLINGS

OP_KEYS = {
    "name", "family", "python", "plugin", "distribution", "version", "operands", "attributes", "rules", "summary", "fault",
}  # fmt: skip
PAGE_KEYS = OP_KEYS | {"signature", "doc", "category", "file"}
PASS_KEYS = {
    "name", "kind", "stage", "plugin", "distribution", "version", "summary", "options", "requires", "ensures",
    "invalidates", "before", "after", "fault",
}  # fmt: skip


def test_every_standard_op_is_listed_with_its_rules(rlx) -> None:
    rows = {row["name"]: row for row in rlx("ops", "--json").json["ops"]}
    assert {f"rlx.{name}" for names in FAMILIES.values() for name in names.split()} <= set(rows)
    usable = {name for name, row in rows.items() if row["fault"] is None}  # the table of families has a test of its own
    assert len(usable) > 100
    for op in (each for each in standard_ops() if each.name in usable):
        row = rows[op.name]
        assert set(row) == OP_KEYS
        assert (row["rules"]["vjp"] == "written") == (op.vjp is not None), op.name
        assert (row["rules"]["decompose"] == "written") == (op.decompose is not None), op.name


def test_a_pattern_chooses_ops(acme) -> None:
    assert [row["name"] for row in acme("ops", "acme.*", "--json").json["ops"]] == ["acme.double"]
    assert "rlx.log_softmax" in acme("ops", "softm").out


def test_a_derived_rule_is_a_small_letter_and_a_missing_one_a_dot(acme) -> None:
    out = acme("ops", "acme.*").out
    assert "acme.double(x; times=1)" in out
    assert any(line.split()[0] == "acme.double(x;" and line.endswith("Dvjbr") for line in out.splitlines() if line)
    assert "acme things · acme" in out
    assert "·VJBR" in acme("ops", "rlx.ex*").out


@pytest.mark.medium
def test_ops_stand_under_their_families_with_their_names_in_python(acme) -> None:
    out = acme("ops", "rlx.cum*").out
    assert out.startswith("cumulative · rlx\n")
    assert "rlx.cumulative_sum" in out
    rows = {row["name"]: row["python"] for row in acme("ops", "--json").json["ops"]}
    assert rows["rlx.exp"] == ["rlx.exp"]
    assert rows["rlx.reduce_max"] == ["rlx.max"]
    assert rows["rlx.call"] == []


def test_every_name_in_python_exists(rlx) -> None:
    rows = rlx("ops", "--json").json["ops"]
    listed = {name.removeprefix("rlx.") for row in rows for name in row["python"] if name.startswith("rlx.")}
    assert all(callable(attrgetter(name)(rlx_core)) for name in listed)
    assert set(SPELLINGS) <= {row["name"] for row in rows}


def test_a_rule_of_another_plugin_is_named(acme) -> None:
    acme.install("extra", "@hookimpl\ndef rlx_rules(): return [RuleSpec('acme.double', 'vjp', 'math:exp')]")
    assert acme("ops", "acme.double", "--json").json["rules"]["vjp"] == "by extra"


def test_one_op_has_a_page_with_its_documentation_and_source(acme) -> None:
    page = acme("ops", "double", "--json").json
    assert set(page) == PAGE_KEYS
    assert page["signature"] == "acme.double(x; times=1)"
    assert page["file"].endswith("acme_things.py:8")
    assert "Exact in every dtype." in acme("ops", "double").out


def test_an_op_that_cannot_be_imported_is_a_row_and_not_the_end(rlx) -> None:
    rlx.install("bad", "@hookimpl\ndef rlx_ops(): return [OpSpec('bad.op', 'nowhere:Op'), OpSpec('bad.pi', 'math:pi')]")
    rows = {row["name"]: row["fault"] for row in rlx("ops", "bad.*", "--json").json["ops"]}
    assert "ModuleNotFoundError" in rows["bad.op"]
    assert rows["bad.pi"].endswith("is no op")
    assert rlx("ops", "bad.op").code == rlx("ops", "bad.pi").code == 2


@pytest.mark.medium
def test_listings_fit_80_columns(acme) -> None:
    for command in ("ops", "passes"):
        assert max(map(len, acme(command).out.splitlines())) <= 80, command


def test_passes_have_options_with_defaults_and_relations(acme) -> None:
    rows = {row["name"]: row for row in acme("passes", "--json").json["passes"]}
    assert all(set(row) == PASS_KEYS for row in rows.values())
    assert rows["rlx.legalize"]["ensures"] == ["legal"]
    assert rows["rlx.algebra"]["kind"] == "rules"
    assert rows["rlx.algebra"]["options"]["disable"] == "()"
    assert "AttributeError" in rows["acme.lost"]["fault"]
    assert acme("passes", "legalise").code == 2
    assert "requires  lowered" in acme("passes", "legalize").out
