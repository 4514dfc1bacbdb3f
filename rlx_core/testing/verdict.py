"""A run of the laws in a separate process, with the result as JSON.

    python -m rlx_core.testing.verdict ANSWER PLUGIN PYTEST-OPTION...    writes the result to the file ANSWER, as JSON

`rlx check` starts it as a separate process, because a plugin under test may run arbitrary code.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rlx_core.plugins import set_default_host
from rlx_core.testing.plugin import DECLINES, SUMMARY
from rlx_core.testing.summary import KEY


class Listener:
    """Collects the results of a run of pytest.

    Attributes:
        lines: The summary of the laws.
        declined: Op → the programs that a backend declines, and why.
        tried: Number of laws that passed or failed, except laws of a target that ran no kernel.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declined: dict[str, str] = {}
        self.tried = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        about = dict(report.user_properties).get(KEY)
        runs_nothing = isinstance(about, dict) and about.get("kernels") == [] and report.passed
        self.tried += report.when == "call" and not report.skipped and not runs_nothing

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        self.lines = config.stash.get(SUMMARY, [])
        self.declined = config.stash.get(DECLINES, {})


def run(word: str, options: list[str]) -> dict[str, object]:
    """Run the laws, and return the exit status of pytest and the results of the laws.

    Args:
        word: The plugin to test in addition to the installed ones: its name, its module or its file.
    """
    from rlx_core.testing.subjects import host_with_module

    listener = Listener()
    if (host := host_with_module(word)) is not None:
        set_default_host(host)
    ended = pytest.main(["-p", "no:cacheprovider", "--pyargs", "rlx_core.testing", *options], plugins=[listener])
    return {"ended": int(ended), "lines": listener.lines, "declined": listener.declined, "tried": listener.tried}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(run(sys.argv[2], sys.argv[3:])), encoding="utf-8")
