"""The output of `rlx check --target`: a line for each step as soon as it ends, and the verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import typer
from attrs import asdict

from rlx_core.cli.session import CliSession
from rlx_core.cli.validating.results import BAD, StepResult
from rlx_core.cli.validating.runner import validate
from rlx_core.cli.validating.steps import chosen

WIDTHS: Final = (22, 9, 8)
COLOURS: Final = {"passed": typer.colors.GREEN, "skipped": typer.colors.YELLOW}


def validate_target(
    session: CliSession, target: str, report: Path, names: Sequence[str], limit: float, *, as_json: bool
) -> bool:
    """Validate a device, print a table, and return whether nothing failed.

    Raises:
        ConfigError: There is no such step, or the report cannot be written.
        DeviceError, DeviceUnavailableError: There is no such target, or it cannot be used here.
    """
    from rlx_core.pipeline.targets import find_target

    steps = chosen(names)
    find_target(session.host, target)  # a misspelt target is one error and not one for each step

    def show(result: StepResult) -> None:
        if not as_json:
            typer.echo(line(result, is_plain=session.is_plain))

    if not as_json:
        typer.echo(f"{'step':{WIDTHS[0]}}{'status':{WIDTHS[1]}}  {'seconds':>{WIDTHS[2]}}  reason")
    results = validate(session, target, report, steps, limit=limit, show=show)
    is_ok = not any(result.status in BAD for result in results)
    if as_json:
        rows = [asdict(result) for result in results]
        typer.echo(json.dumps({"ok": is_ok, "target": target, "steps": rows}, indent=2, default=str))
        return is_ok
    counts = Counter(result.status for result in results)
    summary = ", ".join(f"{count} {status}" for status, count in counts.items())
    typer.echo(f"{target}: {'valid' if is_ok else 'NOT valid'}: {summary}; report: {report}")
    return is_ok


def line(result: StepResult, *, is_plain: bool) -> str:
    """A step as a line of the table."""
    status = f"{result.status:{WIDTHS[1]}}"
    if not is_plain:
        status = typer.style(status, fg=COLOURS.get(result.status, typer.colors.RED))
    return f"{result.step:{WIDTHS[0]}}{status}  {result.seconds:{WIDTHS[2]}.1f}  {result.reason}".rstrip()
