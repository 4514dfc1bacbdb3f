"""Levels follow from the laws that passed without the host, in claimed dtypes."""

from __future__ import annotations

from rlx_core.cli.conforming.levels import LEVELS
from rlx_core.cli.conforming.trial import LawRow, TargetTrial


def trial(*changes: LawRow) -> TargetTrial:
    """A trial in which every family of the levels passes with one op, except for the rows given."""
    families = dict.fromkeys(f for level in LEVELS for f in level.families or ("fourier",))
    rows = [
        LawRow(family, f"rlx.{family}", family, law, frozenset({"f32"}), "passed")
        for family in families
        for law in ("results", "gradients")
    ]
    return TargetTrial("toy", ("f32",), (*rows, *changes))


def row(family: str, status: str, law: str = "results", dtype: str = "f32") -> LawRow:
    return LawRow(family, f"rlx.{family}_two", family, law, frozenset({dtype}), status)  # type: ignore[arg-type]


def test_a_failed_law_or_a_host_row_denies_the_levels_of_its_family() -> None:
    assert trial().level == "full"
    assert trial(row("fourier", "host")).level == "training"
    assert trial(row("softmax", "failed")).level == "elementwise"
    assert trial(row("arithmetic", "host")).level == "none"


def test_gradients_count_from_the_level_training_on() -> None:
    assert trial(row("softmax", "failed", law="gradients")).level == "dense"


def test_programs_of_dtypes_that_are_not_claimed_do_not_count_unless_the_level_requires_them() -> None:
    assert trial(row("arithmetic", "unclaimed", dtype="f64")).level == "full"
    assert trial(row("comparison", "unclaimed", dtype="bool")).level == "none"


def test_host_rows_are_listed_by_family() -> None:
    assert trial(row("softmax", "host")).host_ops == {"softmax": ["rlx.softmax_two"]}
