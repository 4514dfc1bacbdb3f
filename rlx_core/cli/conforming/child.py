"""Laws in a separate process: `python -m rlx_core.cli.conforming.child FOLDER FIRST`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rlx_core.cli.conforming.laws import FILE, Laws, LawTask, cases_of, tried
from rlx_core.cli.session import CliSession
from rlx_core.system.record_files import append_record


def main(folder: Path, first: int) -> None:
    """Try the laws of a request from the task `first` on, and write each verdict as soon as it is known."""
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    tasks = tuple(LawTask(*task) for task in request["tasks"])
    laws = Laws(request["target"], request["is_quick"], request["count"], tasks)
    session = CliSession.requested(request)
    cases = cases_of(session, is_quick=laws.is_quick)
    with (folder / FILE).open("a", encoding="utf-8") as stream:
        stream.write("\n")  # from here on the time of laws counts
    for verdict in tried(session, laws, cases, first):
        append_record(folder / FILE, verdict)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
