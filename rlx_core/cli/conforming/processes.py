"""Laws in separate processes: a backend that ends or blocks one has failed that law, and the next process continues."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rlx_core.cli.conforming.laws import FILE, Laws, LawVerdict
from rlx_core.cli.session import CliSession
from rlx_core.system.processes import cause, module_command, started
from rlx_core.system.record_files import append_record, appended_records

LAW_SECONDS: Final = 60.0
"""Seconds after which a law has failed that gives no verdict."""

START_SECONDS: Final = 60.0
"""Seconds for imports and samples, in addition to those of the first law."""

MAX_ENDS: Final = 10
"""Processes that a backend may end; then the other laws are left untried."""

POLL_SECONDS: Final = 0.05


def in_processes(session: CliSession, laws: Laws, *, seconds: float = LAW_SECONDS) -> Iterator[LawVerdict]:
    """Give the verdicts of laws in their order."""
    with tempfile.TemporaryDirectory(prefix="rlx-conform-") as folder_name:
        folder = Path(folder_name)
        request = {
            "target": laws.target,
            "is_quick": laws.is_quick,
            "count": laws.count,
            "tasks": [(task.case, task.law) for task in laws.tasks],
            **session.request(),
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        (folder / FILE).touch()
        count = ends = 0
        while count < len(laws.tasks):
            if ends == MAX_ENDS:
                yield LawVerdict("untried", f"{ends} processes had ended before it")
                count += 1
                continue
            reason = one_process(folder, count, len(laws.tasks), seconds)
            current = appended_records(folder / FILE, LawVerdict)
            yield from current[count:]
            count = len(current)
            if count < len(laws.tasks):
                ended = LawVerdict("failed", reason)
                with (folder / FILE).open("a", encoding="utf-8") as stream:
                    stream.write("\n")  # after a line that the process did not finish
                append_record(folder / FILE, ended)
                yield ended
                count, ends = count + 1, ends + 1


def one_process(folder: Path, first: int, count: int, seconds: float) -> str:
    """Run laws from the task `first` on until the process ends or a law gives no verdict; returns how it ended."""
    command = module_command("rlx_core.cli.conforming.child", str(folder), str(first))
    with (folder / "output.txt").open("wb") as output, started(command, output) as process:
        code = wait(process, folder, seconds)
    if code is None:
        return f"no verdict after {seconds:.0f} s"
    lines = (folder / "output.txt").read_text(encoding="utf-8", errors="replace").split("\n")
    last_line = next((line.strip() for line in reversed(lines) if line.strip()), "") if code > 0 else ""
    return f"its process {cause(code)}" + (f": {last_line}" if last_line else "")


def wait(process: subprocess.Popen[bytes], folder: Path, seconds: float) -> int | None:
    """The exit code of a process; `None` if it has written nothing for too long."""
    file = folder / FILE
    size, deadline = file.stat().st_size, time.monotonic() + START_SECONDS + seconds
    while (code := process.poll()) is None and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        now = file.stat().st_size
        if now != size:
            size, deadline = now, time.monotonic() + seconds
    return code
