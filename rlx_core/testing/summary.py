"""Summary of a run of the laws: a line for each op, rule and kernel, and its failures.

Each test has its subject in its `user_properties`, which pytest-xdist brings back from its workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pytest
from attrs import field

from rlx_core.system.records import define
from rlx_core.testing.cases import OpProgram, programs
from rlx_core.testing.targets import DECLINED, TargetRun
from rlx_core.testing.variants import bases, variants

KEY: Final = "rlx"
MAX_ROWS: Final = 12
"""Maximum number of ops, rules and kernels that have a line even if nothing failed."""
DIFFERENCES: Final = "vjp_agrees_with_finite_differences"
TRANSPOSES: Final = "vjp_and_jvp_are_transposes"
REFUSES: Final = "what_an_op_does_not_take_it_refuses_with_a_typed_error"


@define
class Tally:
    """The tests of one op, rule or kernel."""

    laws: set[str] = field(factory=set)
    tried: set[str] = field(factory=set)
    kinds: dict[str, str] = field(factory=dict)
    refused: int = 0
    failures: dict[str, list[str]] = field(factory=dict)
    declined: list[str] = field(factory=list)

    def add(self, about: dict[str, Any], report: Any) -> None:
        law = about["law"]
        if report.skipped:
            if (reason := reason_skipped(report)) is not None:
                self.declined.append(reason)
            return
        self.laws.add(law)
        self.refused = max(self.refused, about.get("refused", 0))
        if about["on"]:
            self.tried.add(about["on"])
            self.kinds[about["on"]] = about["varied"]
        if report.failed:
            self.failures.setdefault(law, []).append(complaint(report))

    @property
    def what(self) -> str:
        """The number of samples, and of variants of each kind."""
        counts = Counter(self.kinds[on] for on in self.tried)
        plain = counts.pop("", 0)
        listed = ", ".join(f"{kind} {n}" for kind, n in sorted(counts.items()))
        varied = f", {counts.total()} variants ({listed})" if counts else ""
        refused = f", {self.refused} refused" if self.refused else ""
        return f"{plain} sample{'s' * (plain != 1)}{varied}{refused}"

    @property
    def note(self) -> str | None:
        if TRANSPOSES in self.laws and DIFFERENCES not in self.laws:
            return "its derivative was not compared with differences: no sample is smooth and wider than f16"
        return None


def describe(items: Iterable[pytest.Item]) -> None:
    """Record the subject of each test in its properties."""
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        described = subject(params)
        if described is not None:
            name, on, varied = described
            law = getattr(item, "originalname", item.name).removeprefix("test_")
            item.user_properties.append((KEY, {"subject": name, "law": law, "on": on, "varied": varied}))


def subject(params: dict[str, Any]) -> tuple[str, str, str] | None:
    """Return the op, rule or kernel of a test, the program, and its variation."""
    if isinstance(program := params.get("program"), OpProgram):
        name = f"{program.rule} of {program.op.name}" if program.rule else program.op.name
        return name, repr(program), program.variation or ""
    if (op := params.get("op")) is not None:
        return op.name, "", ""
    if (rejected := params.get("rejected")) is not None:
        return rejected.op.name, "", ""
    if (case := params.get("kernel_case")) is not None:
        return str(case.row), repr(case.program), case.program.variation or ""
    if (kernel := params.get("kernel")) is not None:
        return str(kernel[0]), "", ""
    for fixture in ("rewrite_rule", "contributed_pass", "legalization", "scheme", "file_format"):
        if (row := params.get(fixture)) is not None:
            return str(row), "", ""
    if (block := params.get("block")) is not None:
        return f"block {block.name}", "", ""
    if (contribution := params.get("contribution")) is not None:
        return contribution.name, "", ""
    return None


def describe_refusals(item: pytest.Item) -> None:
    """Add how many variants an op refused, once the law that tries them has."""
    for key, about in item.user_properties:
        if key == KEY and isinstance(about, dict) and about["law"] == REFUSES:
            op = getattr(item, "callspec").params.get("op")  # noqa: B009  not every item has one
            if op is not None:
                varied = [v for base in bases(programs((op,))) for v in variants(base)]
                about["refused"] = sum(v.is_refused for v in varied)


def describe_kernels(item: pytest.Item) -> None:
    """Add the kernels that a target ran, once the law of backends has been tried."""
    run = getattr(getattr(item, "callspec", None), "params", {}).get("backend")
    for key, about in item.user_properties:
        if key == KEY and isinstance(about, dict) and isinstance(run, TargetRun):
            about["kernels"] = list(run.kernels)


def tallied(reports: Iterable[Any]) -> dict[str, Tally]:
    """Return the tallies by op, rule and kernel."""
    tallies: dict[str, Tally] = {}
    for report in reports:
        for key, about in report.user_properties:
            if key == KEY:
                tallies.setdefault(about["subject"], Tally()).add(about, report)
    return tallies


def reason_skipped(report: Any) -> str | None:
    """Return the reason why a backend declines a program; `None` for tests that are skipped otherwise."""
    reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple | list) else ""
    return reason.partition(DECLINED)[2] or None


def declined(reports: Iterable[Any]) -> dict[str, str]:
    """Op → how many of its programs a backend declines, and why it declines the first."""
    result = {}
    for name, tally in sorted(tallied(reports).items()):
        if tally.declined:
            count = len(tally.declined)
            some = f", {count} of {count + len(tally.tried)} programs" if tally.tried else ""
            result[name] = f"declined{some}: {tally.declined[0]}"
    return result


def lines(reports: Sequence[Any]) -> list[str]:
    """Return the lines of the summary; empty if no law ran."""
    tallies = tallied(reports)
    if not any(tally.laws or tally.declined for tally in tallies.values()):
        return []
    tried = {name: tally for name, tally in tallies.items() if tally.tried or tally.failures}
    failed = {name: tally for name, tally in tried.items() if tally.failures}
    shown = tried if len(tried) <= MAX_ROWS else failed
    result = [line for name, tally in sorted(shown.items()) for line in lines_of(name, tally)]
    laws = {law for tally in tallies.values() for law in tally.laws}
    programs_tried = sum(len(tally.tried) for tally in tried.values())
    left = sum(len(tally.declined) for tally in tallies.values())
    result.append(
        f"{len(tried)} ops, rules and kernels; {programs_tried} programs; {len(laws)} laws;"
        f" {len(failed) or 'none'} failed{': ' if failed else ''}{', '.join(sorted(failed))}"
        + (f"; {left} programs declined" if left else "")
    )
    return result


def lines_of(name: str, tally: Tally) -> list[str]:
    verdict = f"{len(tally.failures)} of {len(tally.laws)} laws failed" if tally.failures else f"{len(tally.laws)} laws"
    result = [f"{name}: {verdict}, on {tally.what}"]
    result += [f"    {law} ({len(messages)}×): {messages[0]}" for law, messages in sorted(tally.failures.items())]
    return result + ([f"    {tally.note}"] if tally.note else [])


def complaint(report: Any) -> str:
    """Return the first line of a law's message."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr if crash is None else crash.message).strip()
    rows = [row.strip() for row in text.splitlines() if row.strip()]
    return rows[0].removeprefix("AssertionError: ") if rows else "no message"
