"""Each law fails on what breaks it, and says what is wrong: a law that cannot fail is not one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import pytest
from seeded import (
    wrong_declarations,
    wrong_derivatives,
    wrong_kernels,
    wrong_meaning,
    wrong_ranges,
    wrong_rewrites,
    wrong_rules,
    wrong_schemes,
)
from seeded.seeds import RIGHT, Seed

from rlx_core.errors import RlxError
from rlx_core.ops import standard_ops
from rlx_core.plugins import PluginEntry, PluginHost, default_host, set_default_host
from rlx_core.testing.about import asked_of
from rlx_core.testing.cases import rejections
from rlx_core.testing.choice import tried
from rlx_core.testing.laws import EveryOp
from rlx_core.testing.plugin import kernel_cases, rewrites_asked
from rlx_core.testing.subjects import Subjects, subjects_of

MODULES = (
    wrong_meaning,
    wrong_derivatives,
    wrong_declarations,
    wrong_rules,
    wrong_kernels,
    wrong_ranges,
    wrong_rewrites,
    wrong_schemes,
)
SEEDS = [seed for module in MODULES for seed in module.SEEDS.found]
LAWS: dict[str, Callable[..., None]] = {
    name.removeprefix("test_"): getattr(EveryOp(), name)
    for name in dir(EveryOp)
    if name.startswith("test_") and name != "test_backend_agrees_with_the_interpreter"
}

pytestmark = pytest.mark.filterwarnings("ignore")  # wrong ops also warn


@contextmanager
def subjects(subject: Any) -> Iterator[Subjects]:
    """What an op class or a plugin comes to, as the options of pytest would make it."""
    if isinstance(subject, type):
        yield Subjects(ops=(subject,))
        return
    host = PluginHost([*default_host().entries, PluginEntry("tried", plugin=subject)])
    before = set_default_host(host)
    try:
        yield subjects_of("tried")
    finally:
        set_default_host(before)


def arguments(law: str, found: Subjects) -> list[tuple[Any, ...]]:
    """Everything that a law is asked of."""
    if law == "contribution_can_be_used":
        return [(each,) for each in found.contributions]
    if "op" in signature(LAWS[law]).parameters:
        return [(op,) for op in found.ops]
    if law == "rejection_says_what_it_promised":
        return [(case,) for case in rejections(found.ops)]
    if law == "kernel_runs_what_it_takes":
        return [((row, kernel_cases(row, found)),) for row in found.kernels]
    if law.startswith("kernel_"):
        return [(case,) for row in found.kernels for case in kernel_cases(row, found)]
    for fixture, subjects_asked in rewrites_asked(list(signature(LAWS[law]).parameters), found).items():
        assert fixture, "a law of rewrites has one fixture"
        return [(each,) for each in subjects_asked]
    programs = tried(found.programs(), asked_of(LAWS[law]), law, "all")
    table = {op.name: op for op in (*standard_ops(), *found.ops)}
    return [(p, table) if law == "prints_and_parses_back" else (p,) for p in programs]


def breaches(law: str, found: Subjects) -> Iterator[str]:
    """What a law says of its subjects, each that it fails on."""
    for asked in arguments(law, found):
        try:
            LAWS[law](*asked)
        except (AssertionError, RlxError, TypeError, ValueError) as error:
            yield "\n".join([str(error), *getattr(error, "__notes__", ())])


@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_a_law_says_what_is_wrong(seed: Seed) -> None:
    with subjects(seed.subject) as found:
        said: list[str] = []
        for each in breaches(seed.law, found):
            said.append(each)
            if re.search(seed.says, each):
                return
    raise AssertionError(f"{seed.law} says nothing of the kind: {said}")


def test_there_are_many_seeds_and_every_law_has_one() -> None:
    assert len(SEEDS) >= 150
    names = [str(seed) for seed in SEEDS]
    assert len(set(names)) == len(names)
    assert {seed.law for seed in SEEDS} == set(LAWS)


def called(subject: Any) -> str:
    """A name for a case: the class's, because workers must agree on it."""
    return str(getattr(subject, "__name__", type(subject).__name__))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    "subject",
    [*RIGHT, *wrong_ranges.RIGHT, wrong_rules.Right(), wrong_kernels.RightKernel(), wrong_rewrites.RightFormat()],
    ids=called,
)
def test_what_is_right_passes(law: str, subject: Any) -> None:
    with subjects(subject) as found:
        assert not list(breaches(law, found))
