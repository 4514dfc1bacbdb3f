"""Passes run, for authors who try theirs. (`engine/runner.py`)"""

from __future__ import annotations

from rlx_core.passes.engine.runner import PassEvent, PassRun, Run, Watch, run_passes

__all__ = ["PassEvent", "PassRun", "Run", "Watch", "run_passes"]
