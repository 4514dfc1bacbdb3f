"""How many threads this process may use, by its CPU affinity and its control group's quota."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["usable_cpus"]

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_QUOTA_V1 = (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us"))


def usable_cpus() -> int:
    """CPUs that this process may run on, at least 1; a quota of 1.5 CPUs counts as 2."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return max(1, allowed if quota is None else min(allowed, quota))


def _quota() -> int | None:
    """The CPUs that the control group grants, rounded up; `None` without a limit."""
    try:
        if _QUOTA.exists():
            quota, period = _QUOTA.read_text().split()[:2]
        else:
            quota, period = (path.read_text().strip() for path in _QUOTA_V1)
        limit, each = int(quota), int(period)
    except (OSError, ValueError):
        return None  # no control group, or `max`: no limit
    return None if limit <= 0 or each <= 0 else -(-limit // each)
