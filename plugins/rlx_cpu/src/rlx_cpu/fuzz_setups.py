"""Configurations in which the CPU runs generated programs (`rlx_core.testing.fuzz --setups rlx_cpu.fuzz_setups:FUZZ_SETUPS`)."""

from __future__ import annotations

from typing import Any, Final

from rlx_core.testing.fuzz import FuzzSetup


def threads(count: int) -> dict[str, Any]:
    return {"options": {"cpu.threads": count}}


FUZZ_SETUPS: Final = (
    FuzzSetup("2 threads", threads(2)),
    FuzzSetup("1 thread", threads(1), repeats="2 threads"),
    FuzzSetup("3 threads", threads(3), repeats="2 threads"),
    FuzzSetup("nothing in place", threads(2), repeats="2 threads", is_apart=True),
    FuzzSetup("without passes", {"use": "none", **threads(1)}, every=4),
    FuzzSetup("without passes, NumPy", {"use": "none", "options": {"cpu.tier": "numpy"}}),
)
"""Without passes NumPy runs all of them and native code every fourth."""
