"""The ways in which the CPU may run one generated program (`rlx_core.testing.fuzz`, `--ways rlx_cpu.ways:WAYS`)."""

from __future__ import annotations

from typing import Any, Final

from rlx_core.testing.fuzz import Way

__all__ = ["WAYS"]


def threads(count: int) -> dict[str, Any]:
    return {"options": {"cpu.threads": count}}


WAYS: Final = (
    Way("2 threads", threads(2)),
    Way("1 thread", threads(1), repeats="2 threads"),
    Way("3 threads", threads(3), repeats="2 threads"),
    Way("nothing in place", threads(2), repeats="2 threads", is_apart=True),
    Way("without passes", {"use": "none", **threads(1)}, every=4),
    Way("without passes, NumPy", {"use": "none", "options": {"cpu.tier": "numpy"}}),
)
"""Without passes NumPy runs all of them and native code every fourth."""
