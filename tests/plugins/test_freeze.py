"""Order comes from what records say, then from priority, then from names; never from who came first."""

from __future__ import annotations

import random

import pytest

from rlx_core.contributions import PassSpec
from rlx_core.errors import CycleError
from rlx_core.plugins.freeze import ordered


def table(*records):
    return {record.name: record for record in records}


def spec(name, **fields):
    return PassSpec(f"acme.{name}", "math:exp", **fields)


def test_relations_come_first_then_priority_then_names():
    records = table(
        spec("a", after=["acme.z"]), spec("b"), spec("c", priority=5), spec("z"), spec("d", before=["acme.b"])
    )

    assert ordered(records) == ["acme.c", "acme.d", "acme.b", "acme.z", "acme.a"]


def test_a_relation_to_something_absent_says_nothing():
    assert ordered(table(spec("a", after=["gone.p"]), spec("b", before=["gone.p"]))) == ["acme.a", "acme.b"]


def test_the_order_does_not_depend_on_the_order_of_the_records():
    generator = random.Random(0)
    names = [f"p{number:02}" for number in range(30)]
    records = [
        spec(name, after=[f"acme.{each}" for each in generator.sample(names[:index], min(index, 2))])
        for index, name in enumerate(names)
    ]
    expected = ordered(table(*records))

    for _ in range(20):
        generator.shuffle(records)
        assert ordered(table(*records)) == expected


def test_a_cycle_is_spelled_out_with_who_says_what():
    records = table(spec("a", before=["acme.b"]), spec("b"), spec("c", after=["acme.b"], before=["acme.a"]), spec("d"))

    with pytest.raises(CycleError, match=r"acme\.a → acme\.b → acme\.c → acme\.a is a cycle") as caught:
        ordered(records)

    assert [(fact.label, fact.value) for fact in caught.value.facts] == [
        ("acme.a", "says it comes before acme.b"),
        ("acme.c", "says it comes after acme.b"),
        ("acme.c", "says it comes before acme.a"),
    ]


def test_a_record_after_itself_is_the_shortest_cycle():
    with pytest.raises(CycleError, match=r"acme\.a → acme\.a"):
        ordered(table(spec("a", after=["acme.a"])))
