"""One step in a separate process: `python -m rlx_core.cli.validating.child FOLDER STEP`."""

from __future__ import annotations

import importlib
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Final

from rlx_core.cli.session import CliSession
from rlx_core.cli.validating.bench import Bench, one_line
from rlx_core.cli.validating.results import END, CheckRow
from rlx_core.cli.validating.steps import chosen
from rlx_core.system.record_files import append_record

STOPS_AFTER: Final = 0.8
"""The part of a step's time after which it begins no further check."""


def main(folder: Path, name: str) -> None:
    """Run a step, and write each row as soon as it is known."""
    begun = time.monotonic()
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    (step,) = chosen([name])
    rows = folder / "rows" / f"{name.replace('/', '_')}.jsonl"
    rows.parent.mkdir(exist_ok=True)
    try:
        host = CliSession.requested(request).host
        host.activate_all()
        deadline = begun + STOPS_AFTER * min(step.seconds, request["limit"])
        bench = Bench(request["target"], host, folder, name, deadline)
        module, _, function = step.run.partition(":")
        for row in getattr(importlib.import_module(module), function)(bench, step.argument):
            append_record(rows, row)
    except Exception as error:  # noqa: BLE001  the rows before it count, and it is one more
        traceback.print_exc()
        append_record(rows, CheckRow("(step)", "failed", one_line(error), {"error": type(error).__name__}))
    append_record(rows, END)  # a library that ends the process with code 0 is no success


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
