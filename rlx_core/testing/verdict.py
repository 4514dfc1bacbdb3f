"""The laws, run by a program that wants to know what came of them.

    python -m rlx_core.testing.verdict ANSWER PLUGIN PYTEST-OPTION...    writes what came of it to the file ANSWER, as JSON

`rlx check` starts it as a process of its own: a plugin under test may do what it likes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rlx_core.plugins import set_default_host
from rlx_core.testing.plugin import DECLINES, SUMMARY
from rlx_core.testing.summary import KEY

__all__ = ["Listener", "run"]


class Listener:
    """What a run of pytest comes to.

    Attributes:
        lines: The summary of the laws.
        declined: Op → what a backend declines of it, and why.
        tried: How many laws passed or failed, those of a target not counted in which it ran no kernel.
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
    """Run the laws, and say how pytest ended and what the laws came to.

    Args:
        word: The plugin whose contributions are there beside what is installed: its name, its module or its file.
    """
    from rlx_core.testing.subjects import host_with_module

    listener = Listener()
    if (host := host_with_module(word)) is not None:
        set_default_host(host)
    ended = pytest.main(["-p", "no:cacheprovider", "--pyargs", "rlx_core.testing", *options], plugins=[listener])
    return {"ended": int(ended), "lines": listener.lines, "declined": listener.declined, "tried": listener.tried}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(run(sys.argv[2], sys.argv[3:])), encoding="utf-8")
