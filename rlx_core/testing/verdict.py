"""The laws, run by a program that wants to know what came of them.

    python -m rlx_core.testing.verdict ANSWER PYTEST-OPTION...       writes what came of it to the file ANSWER, as JSON

`rlx check` starts it as a process of its own: a plugin under test may do what it likes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rlx_core.testing.plugin import SUMMARY

__all__ = ["Listener", "run"]


class Listener:
    """What a run of pytest comes to.

    Attributes:
        lines: The summary of the laws.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        self.lines = config.stash.get(SUMMARY, [])


def run(options: list[str]) -> dict[str, object]:
    """Run the laws, and say how pytest ended and what the laws came to."""
    listener = Listener()
    ended = pytest.main(["-p", "no:cacheprovider", "--pyargs", "rlx_core.testing", *options], plugins=[listener])
    return {"ended": int(ended), "lines": listener.lines}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(run(sys.argv[2:])), encoding="utf-8")
