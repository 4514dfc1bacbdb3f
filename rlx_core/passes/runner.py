"""Passes run, for authors who try theirs. (`engine/runner.py`)"""

from __future__ import annotations

from rlx_core.passes.engine.runner import PassesRun, PassEvent, PassRun, Watch, run_passes

__all__ = ["PassEvent", "PassRun", "PassesRun", "Watch", "run_passes"]
