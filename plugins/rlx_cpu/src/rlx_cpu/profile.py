"""Step times of native calls, read from the time stamps that generated code takes on every thread."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from rlx_core.ir.lir import Step
from rlx_core.pipeline.profile import Profile


def add_native(profile: Profile, steps: Sequence[Step], stamps: np.ndarray) -> None:
    """Report the times of a native run; the several calls of one step count together.

    Args:
        profile: Where to.
        steps: The step of each call.
        stamps: `[threads, calls, 3]` nanoseconds of the monotonic clock, which `time.perf_counter` reads too: begun, done or 0
            for a thread that had no part in it, met at the barrier.
    """
    had_part = stamps[:, :, 1] > 0
    begun = np.where(had_part, stamps[:, :, 0], np.iinfo(np.int64).max).min(0)
    done = stamps[:, :, 1].max(0)
    idle = np.where(had_part, done - stamps[:, :, 1], done - begun).mean(0)
    calls = zip(steps, 1e-9 * begun, 1e-9 * (done - begun), 1e-9 * idle, strict=True)
    for step, group in groupby(calls, key=lambda call: call[0]):
        step_calls = list(group)
        profile.add(
            step, float(sum(c[2] for c in step_calls)), float(sum(c[3] for c in step_calls)), float(step_calls[0][1])
        )
