"""Faults: the number that a kernel stopped at as an error of any class, in memory and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import asdict, evolve

from rlx_core.codegen.places import Fault
from rlx_core.errors import FormatError, IndexRangeError, RlxError
from rlx_core.ir.forms import PLAIN_FORMS

INDEX = Fault("take: index {} is outside an axis of 5 elements")
SHAPED = Fault(
    "f: the matrix at [{}, {}] has {} of 3",
    "rlx_core.errors:ShapeError",
    (2, 4, 3),
    (("at", "[{0}, {1}]"),),
    hint="ask for fewer",
)


def test_an_index_is_said_as_it_is() -> None:
    for number, said in ((7, "7"), (-9, "-9"), (None, "(not known)")):
        error = INDEX(number)
        assert type(error) is IndexRangeError
        assert error.message == f"take: index {said} is outside an axis of 5 elements"
        assert (error.facts, error.hint) == ([], None)
    assert [f.label for f in INDEX(7, 3).facts] == ["place"]


def test_a_number_is_the_place_in_an_array_and_said_by_its_indices() -> None:
    error = SHAPED((1 * 4 + 3) * 3 + 2)
    assert type(error).__name__ == "ShapeError"
    assert error.message == "f: the matrix at [1, 3] has 2 of 3"
    assert [(f.label, f.value) for f in error.facts] == [("at", "[1, 3]")]
    assert error.hint == "ask for fewer"
    assert SHAPED.of(1, 3, 2).message == error.message
    assert "[(not known), (not known)] has (not known)" in SHAPED(None).message


def test_several_functions_faults_are_kinds_of_one() -> None:
    both = Fault.among([INDEX, SHAPED])
    assert both is not None
    assert both.kinds == (INDEX, SHAPED)
    assert both(1).message == INDEX(1).message
    assert Fault.among([]) is None
    assert INDEX.kinds == (INDEX,)


@pytest.mark.parametrize(
    "fault", [INDEX, SHAPED, Fault.among([SHAPED, INDEX, SHAPED])], ids=["index", "shaped", "several"]
)
def test_a_fault_is_json(fault: Fault) -> None:
    assert PLAIN_FORMS.read(json.loads(json.dumps(asdict(fault))), Fault, "a fault") == fault


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("message", 3),
        ("error", None),
        ("dims", [1.5]),
        ("dims", 4),
        ("facts", [["at"]]),
        ("alternatives", [{}]),
        ("hint", 1),
    ],
)
def test_other_json_is_refused(key: str, value: Any) -> None:
    with pytest.raises(FormatError):
        PLAIN_FORMS.read({**json.loads(json.dumps(asdict(SHAPED))), key: value}, Fault, "a fault")


def test_an_error_of_a_package_that_is_not_installed_is_of_the_class_that_all_have() -> None:
    error = evolve(SHAPED, error="no_such_package.errors:OwnError")(0)
    assert type(error) is RlxError
    assert error.message == SHAPED(0).message


@pytest.mark.parametrize("address", ["os:system", "rlx_core.errors:nearest", "rlx_core.errors:NoSuchError"])
def test_what_is_no_class_of_errors_is_refused(address: str) -> None:
    with pytest.raises(FormatError, match="no class of errors"):
        evolve(SHAPED, error=address)(0)
