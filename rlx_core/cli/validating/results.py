"""Results of a validation: rows of a step, and the step's status, as lines of JSON in a folder that is also a zip."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from attrs import field

from rlx_core.system.records import frozen

Status = Literal["passed", "failed", "skipped", "timed out", "crashed"]

BAD: Final = ("failed", "timed out", "crashed")
"""The statuses that make the command exit with 1."""


@frozen
class CheckRow:
    """One check within a step.

    Args:
        reason: One line: the reason of a failure or skip.
        facts: Figures and names for readers of the report.
    """

    name: str
    status: Status
    reason: str = ""
    facts: dict[str, Any] = field(factory=dict)


END: Final = CheckRow("(end)", "passed")
"""The last row of a step whose function came to its end."""


@frozen
class StepResult:
    """The outcome of a step.

    Args:
        seconds: The wall-clock time of its process.
    """

    step: str
    status: Status
    seconds: float
    reason: str = ""
    rows: tuple[CheckRow, ...] = ()


def status_of(rows: Sequence[CheckRow]) -> tuple[Status, str]:
    """Return the status of a step whose process ended normally, and the reason in one line."""
    bad = [row for row in rows if row.status in BAD]
    skipped = [row for row in rows if row.status == "skipped"]
    if bad:
        more = f" (and {len(bad) - 1} more of {len(rows)})" if len(bad) > 1 else ""
        return "failed", f"{bad[0].name}: {bad[0].reason}{more}"
    if not rows:
        return "failed", "the step checked nothing"
    if len(skipped) == len(rows):
        return "skipped", skipped[0].reason
    if len(rows) == 1:
        return "passed", rows[0].reason
    reasons = Counter(row.reason for row in skipped)
    left = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common())
    return "passed", f"{len(rows) - len(skipped)} checks" + (f", {len(skipped)} skipped ({left})" if skipped else "")


def archive(folder: Path, file: Path) -> None:
    """Write the folder as a zip; an earlier zip is replaced only by a complete one."""
    partial = file.with_name(f"{file.name}.part")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for each in sorted(folder.rglob("*")):
            if each.is_file():
                zip_file.write(each, str(each.relative_to(folder)))
    partial.replace(file)
