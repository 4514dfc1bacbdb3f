"""Runs steps one after the other, each in a process with a time limit; the report is complete after each of them."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rlx_core.cli.session import CliSession
from rlx_core.cli.validating.results import END, CheckRow, StepResult, archive, status_of
from rlx_core.cli.validating.steps import MAX_SECONDS, ValidationStep
from rlx_core.errors import ConfigError, Fact
from rlx_core.system.processes import cause, module_command, started
from rlx_core.system.record_files import append_record, appended_records

MIN_SECONDS: Final = 5.0
"""With less than this left of all steps' time, a step is not begun."""


def validate(
    session: CliSession,
    target: str,
    report: Path,
    steps: Sequence[ValidationStep],
    *,
    limit: float = MAX_SECONDS,
    show: Callable[[StepResult], None] = lambda result: None,
) -> list[StepResult]:
    """Return the results of the steps, all of them also in the report.

    Args:
        report: The zip; it is written after each step.
        limit: Seconds that a step may take at most, whatever its own limit is.
        show: Is given each result as soon as it is known.

    Raises:
        ConfigError: The report cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="rlx-check-") as folder_name:
        folder, end = Path(folder_name), time.monotonic() + MAX_SECONDS
        request = {"target": target, "limit": limit, **session.request()}
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        results: list[StepResult] = []
        write(folder, report)
        try:
            for step in steps:
                left = end - time.monotonic()
                if left < MIN_SECONDS:
                    result = StepResult(step.name, "skipped", 0.0, f"the {MAX_SECONDS:.0f} s of all steps are used up")
                else:
                    result = run_step(folder, step, min(step.seconds, limit, left))
                results.append(result)
                append_record(folder / "results.jsonl", result)
                write(folder, report)
                show(result)
        finally:
            write(folder, report)  # the rows of an interrupted step, too
    return results


def write(folder: Path, report: Path) -> None:
    try:
        archive(folder, report)
    except OSError as error:
        raise ConfigError(f"--report: {report} cannot be written", Fact("system", error)) from None


def run_step(folder: Path, step: ValidationStep, seconds: float) -> StepResult:
    """Run a step's process to its end or to its time limit."""
    name = step.name.replace("/", "_")
    (folder / "output").mkdir(exist_ok=True)
    begun = time.monotonic()
    command = module_command("rlx_core.cli.validating.child", str(folder), step.name)
    with (folder / "output" / f"{name}.txt").open("wb") as output, started(command, output) as process:
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
    taken = time.monotonic() - begun
    written = appended_records(folder / "rows" / f"{name}.jsonl", CheckRow)
    has_ended = written[-1:] == [END]
    rows = tuple(row for row in written if row != END)
    if code == 0 and has_ended:
        status, reason = status_of(rows)
        return StepResult(step.name, status, taken, reason, rows)
    after = f" after {rows[-1].name}" if rows else " before the first check ended"
    if code is None:
        return StepResult(step.name, "timed out", taken, f"{seconds:.0f} s{after}{earlier(rows)}", rows)
    return StepResult(step.name, "crashed", taken, f"{cause(code)}{after}{earlier(rows)}", rows)


def earlier(rows: Sequence[CheckRow]) -> str:
    """The failure before the end of a process, if there was one."""
    failed = [row for row in rows if row.status == "failed"]
    return f"; before it {failed[0].name}: {failed[0].reason}" if failed else ""
