"""Verdicts of targets are kept with versions, and shown as out of date when one of them has changed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from attrs import evolve

import rlx_core
from rlx_core.cli.checking.checks import conformance
from rlx_core.cli.conforming.verdicts import Conformance, recorded_verdicts, store_verdict

VERDICT = Conformance("toy", "acme", "acme-rlx", "1.0", rlx_core.__version__, "dense", 40, 0, 3)


def host(version: str) -> SimpleNamespace:
    return SimpleNamespace(entries=[SimpleNamespace(distribution="acme-rlx", version=version)])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))


def test_the_latest_verdict_of_a_target_is_kept() -> None:
    store_verdict(VERDICT)
    store_verdict(evolve(VERDICT, target="other"))
    store_verdict(evolve(VERDICT, level="full"))
    assert {each.target: each.level for each in recorded_verdicts()} == {"toy": "full", "other": "dense"}


def test_doctor_shows_the_verdict_and_whether_it_is_out_of_date() -> None:
    store_verdict(VERDICT)
    (current,) = conformance(host("1.0"))
    assert (current.verdict, current.name) == ("ok", "toy")
    assert "level dense" in current.found
    (old,) = conformance(host("1.1"))
    assert (old.verdict, old.mend) == ("note", "rlx conform toy")
    assert "out of date" in old.found
    store_verdict(evolve(VERDICT, failed=2))
    assert next(conformance(host("1.0"))).verdict == "wrong"
    assert not list(conformance(SimpleNamespace(entries=[])))


def test_damaged_lines_are_not_listed(tmp_path) -> None:
    store_verdict(VERDICT)
    file = tmp_path / "cache" / "conformance.jsonl"
    file.write_text(file.read_text() + '[]\nno json\n{"target": 3}\n')
    assert recorded_verdicts() == [VERDICT]
