"""ONNX's 1,884 node tests: what passes stays so, what is refused is refused for the reason that is written down."""

from __future__ import annotations

import pytest
from onnx_cases import cases, listed, outcome

PARTS = 32


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_node_tests_pass_or_are_refused_as_listed(part: int) -> None:
    """Nothing is wrong; a test that passes though it is listed is to be taken off the list."""
    refused, drawn = listed()["refused"], listed()["drawn"]
    faults = []
    for case in cases()[part::PARTS]:
        found = outcome(case)
        wanted = ("refused",) if case.name in refused else ("drawn",) if case.name in drawn else ("passed", "held")
        if found.kind not in wanted:
            faults.append(f"{case.name}: {found.kind} {found.words[:300]}")
        elif found.kind == "refused" and refused[case.name] not in found.words:
            faults.append(f"{case.name}: refused, but not for {refused[case.name]!r}: {found.words[:300]}")
    assert not faults, "\n".join(faults)


@pytest.mark.slow
def test_the_lists_name_tests_that_there_are() -> None:
    """1,884 tests, of which at least 1,820 pass."""
    names = {case.name for case in cases()}
    left_out = {name for part in listed().values() for name in part}
    assert left_out <= names
    assert len(names) - len(left_out) >= 1820
