"""The pytest plugin: options that choose the tests, and the cases of each law.

It is loaded through the `pytest11` entry point of rlx-core and does nothing until a test class derives from `EveryOp` or from
`EveryBackend`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from rlx_core.errors import RlxError

__all__ = [
    "pytest_addoption",
    "pytest_collection",
    "pytest_collection_modifyitems",
    "pytest_generate_tests",
    "pytest_runtest_call",
    "pytest_runtest_makereport",
    "pytest_terminal_summary",
]

for _module in ("laws", "judges"):  # and their submodules
    pytest.register_assert_rewrite(f"rlx_core.testing.{_module}")

FIXTURES = {
    *("contribution", "op", "program", "rejected", "kernel", "kernel_case"),
    *("rewrite_rule", "contributed_pass", "legalization", "block", "scheme", "file_format"),
}
"""The fixtures of cases; a law has one of these."""

SUMMARY = pytest.StashKey[list[str]]()
"""The lines of the summary, for a program that runs pytest."""

DECLINES = pytest.StashKey[dict[str, str]]()
"""Op → the programs that a backend declines, and why, for a program that runs pytest."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rlx", "the laws of rlx")
    group.addoption(
        "--rlx-plugin",
        action="append",
        default=[],
        metavar="NAME",
        help="try the ops, rules and kernels of this plugin or module",
    )
    group.addoption("--rlx-op", action="append", default=[], metavar="NAME", help="try only what concerns this op")
    group.addoption(
        "--rlx-backend",
        action="append",
        default=[],
        metavar="TARGET",
        help="also compare a backend with the interpreter: a target's name, or module:function of (graph, arrays)",
    )
    group.addoption(
        "--rlx-partial",
        action="store_true",
        help="a backend may decline programs: the law is skipped for them, with the reasons of the kernels",
    )
    group.addoption(
        "--rlx-samples",
        choices=["one", "all"],
        default="all",
        help="each law tries every sample and its variants (all), or of each op one sample, another for each law (one)",
    )
    group.addoption(
        "--rlx-seed",
        type=int,
        default=0,
        metavar="N",
        help="with --rlx-samples=one, which sample: another N tries others, the same N the same again",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Look up the names in the options before anything is collected, so that a misspelt name is one error."""
    from rlx_core.plugins import default_host, set_default_host

    config = session.config
    try:
        for word in config.getoption("--rlx-plugin"):
            from rlx_core.testing.subjects import host_with_module

            if (host := host_with_module(word)) is not None:
                config.add_cleanup(partial(restore, set_default_host(host)))
        if config.getoption("--rlx-plugin"):
            subjects(config, None)
        for target in config.getoption("--rlx-backend"):
            if is_name(target):
                default_host().require("backends", target)
            else:
                runner(target)
    except RlxError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.cls is None or not FIXTURES & set(metafunc.fixturenames):
        return
    from rlx_core.testing import laws  # imports every op, which runs without laws must not pay for

    if not issubclass(metafunc.cls, laws.EveryBackend):
        return
    try:
        parametrize(metafunc)
    except RlxError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if laws := laws_in_use():
        from rlx_core.testing.summary import describe

        describe(item for item in items if issubclass(getattr(item, "cls", None) or object, laws.EveryBackend))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip the law of backends for a program that a partial backend declines, with the reasons of its kernels."""
    try:
        return (yield)
    except RlxError as error:
        from rlx_core.errors import LegalizeError
        from rlx_core.testing.targets import DECLINED, reason_declined

        is_partial = item.config.getoption("--rlx-partial") and "backend" in getattr(item, "fixturenames", ())
        reason = reason_declined(error) if is_partial and isinstance(error, LegalizeError) else None
        if reason is None:
            raise
    pytest.skip(f"{DECLINED}{reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    if call.when == "call" and item.user_properties and laws_in_use():
        from rlx_core.testing.summary import describe_kernels, describe_refusals

        describe_refusals(item)
        describe_kernels(item)
    return (yield)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the results of the laws, a line for each op, rule and kernel; and the seed that tries the same again."""
    if seed := terminalreporter.config.getoption("--rlx-seed"):
        terminalreporter.line(f"these are the samples and cases of --rlx-seed={seed}")
    found_of = [r for kind in ("passed", "failed", "skipped") for r in terminalreporter.stats.get(kind, ())]
    # Files that are skipped whole have reports of another class.
    reports = [r for r in found_of if isinstance(r, pytest.TestReport) and r.user_properties]
    if not reports:
        return
    from rlx_core.testing.summary import declined, lines

    terminalreporter.config.stash[DECLINES] = declined(reports)
    if summary := lines(reports):
        terminalreporter.config.stash[SUMMARY] = summary
        terminalreporter.section("the laws of rlx")
        for line in summary:
            terminalreporter.line(line)


def restore(host: Any) -> None:
    """Use the host again that was the default before."""
    from rlx_core.plugins import set_default_host

    set_default_host(host)


def laws_in_use() -> Any:
    """The module of the laws, if a test imported it: runs without laws must not pay for it."""
    return sys.modules.get("rlx_core.testing.laws")


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Ask a law of everything that it is about."""
    from rlx_core.testing import cases
    from rlx_core.testing.about import asked_of
    from rlx_core.testing.choice import one_of_each, tried

    config, law = metafunc.config, metafunc.function.__name__
    if seed := config.getoption("--rlx-seed"):
        law = f"{law} {seed}"
    chosen = subjects(config, metafunc.cls.ops)
    amount = config.getoption("--rlx-samples")
    by_fixture: dict[str, Sequence[Any]] = {}
    if "backend" in metafunc.fixturenames:
        targets = config.getoption("--rlx-backend")
        if not targets:
            not_asked(metafunc, "no backend was named; --rlx-backend=TARGET asks one")
            return
        metafunc.parametrize("backend", [runner(t) for t in targets], ids=targets)
    if "op_table" in metafunc.fixturenames:
        metafunc.parametrize("op_table", [op_table(chosen.ops)], ids=[""])
    if "contribution" in metafunc.fixturenames:
        by_fixture["contribution"] = chosen.contributions
    if "op" in metafunc.fixturenames:
        by_fixture["op"] = chosen.ops
    if "rejected" in metafunc.fixturenames:
        refused = cases.rejections(chosen.ops)
        by_fixture["rejected"] = one_of_each(refused, lambda case: case.op.name, law) if amount == "one" else refused
    if "kernel" in metafunc.fixturenames:
        by_fixture["kernel"] = [(row, kernel_cases(row, chosen)) for row in chosen.kernels]
    if "kernel_case" in metafunc.fixturenames:
        every = [case for row in chosen.kernels for case in kernel_cases(row, chosen)]
        by_fixture["kernel_case"] = one_of_each(every, lambda case: str(case.row), law) if amount == "one" else every
    by_fixture |= rewrites_asked(metafunc.fixturenames, chosen)
    if "program" in metafunc.fixturenames:
        by_fixture["program"] = tried(chosen.programs(), asked_of(metafunc.function), law, amount)
    for fixture, parameters in by_fixture.items():
        if not parameters:
            not_asked(metafunc, f"no {fixture} is one that this law is about")
            return
        metafunc.parametrize(fixture, parameters, ids=[name_of(each) for each in parameters])


def rewrites_asked(fixtures: Sequence[str], chosen: Any) -> dict[str, Sequence[Any]]:
    """Return the cases of the laws of rewrites, by fixture."""
    from rlx_core.testing.subjects import LegalizationRow, PassSubject, RuleRow

    rows = {"rewrite_rule": RuleRow, "contributed_pass": PassSubject, "legalization": LegalizationRow}
    by_fixture: dict[str, Sequence[Any]] = {f: chosen.rewrites_of(row) for f, row in rows.items() if f in fixtures}
    if "block" in fixtures:
        by_fixture["block"] = chosen.blocks
    if "scheme" in fixtures:
        by_fixture["scheme"] = chosen.schemes
    if "file_format" in fixtures:
        by_fixture["file_format"] = chosen.formats
    return by_fixture


def kernel_cases(row: Any, chosen: Any) -> Any:
    """The programs that a kernel takes: samples of its op, or of every op that it is for, and their variants."""
    from rlx_core.testing import cases
    from rlx_core.testing.laws import kernels
    from rlx_core.testing.subjects import standard
    from rlx_core.testing.variants import accepted, bases

    ops = dict.fromkeys([row.kernel.op] if row.kernel.op.name else [*chosen.ops, *standard().ops])
    base_programs = cases.programs(tuple(op for op in ops if issubclass(op, row.kernel.op)))
    return kernels.kernel_cases(row, [*base_programs, *(v for base in bases(base_programs) for v in accepted(base))])


def name_of(subject: Any) -> str:
    """Return the test id of a case."""
    if isinstance(subject, tuple):
        return str(subject[0])
    return str(getattr(subject, "name", subject)) if isinstance(subject, type) else str(subject)


def not_asked(metafunc: pytest.Metafunc, reason: str) -> None:
    """Skip a law once, with its reason."""
    names = sorted((FIXTURES | {"backend"}) & set(metafunc.fixturenames))
    nothing = pytest.param(*(None for _ in names), marks=pytest.mark.skip(reason=reason), id="nothing")
    metafunc.parametrize(names, [nothing])


def subjects(config: pytest.Config, own_ops: Sequence[Any] | None) -> Any:
    """Return the subjects: the ops of the class, else the contributions of the named plugins, else the standard ops."""
    from rlx_core.testing.subjects import Subjects, select, standard, subjects_of

    plugins: list[str] = config.getoption("--rlx-plugin")
    if own_ops is not None:
        result = Subjects(ops=tuple(own_ops))
    elif plugins:
        result = Subjects()
        for plugin in plugins:
            result += subjects_of(plugin)
    else:
        result = standard()
    return select(result, config.getoption("--rlx-op"))


def op_table(ops: Sequence[Any]) -> dict[str, Any]:
    """Op name → class, for reading texts back: nested graphs of the ops under test may hold standard ones."""
    from rlx_core.ops import standard_ops

    return {op.name: op for op in (*standard_ops(), *ops)}


def is_name(target: str) -> bool:
    """Return whether a backend is named by its target, and not by a module and a function."""
    return "." not in target and ":" not in target


def runner(target: str) -> Any:
    """The function that runs a graph on a backend.

    Raises:
        UsageError: The module or function that was named does not exist.
    """
    from rlx_core.testing.targets import TargetRun

    if is_name(target):
        return TargetRun(target)
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name or "run")
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"--rlx-backend {target}: {error}") from error
