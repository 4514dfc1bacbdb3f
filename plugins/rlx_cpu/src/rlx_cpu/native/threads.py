"""Thread creation, and the number of usable threads by the process's CPU affinity and control group quotas."""

from __future__ import annotations

import os
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def usable_cpus(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> int:
    """Return the number of CPUs that this process may keep busy, at least 1; a quota of 1.5 CPUs counts as 2.

    Args:
        root: Mount point of control groups.
        membership: The file that lists the groups of the process.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *_quotas(root, membership)]))


def started(function: Callable[..., object], *args: object) -> bool:
    """Run a function in a new thread; return whether a thread could be created.

    `threading.Thread.start` waits until the thread reports that it runs, which never happens without memory.
    """
    try:
        start_new_thread(function, args)
    except (RuntimeError, MemoryError):  # no more threads, or the interpreter is about to end
        return False
    return True


@lru_cache(maxsize=8)
def _quotas(root: Path, membership: Path) -> tuple[int, ...]:
    """The CPUs that each group of the process grants, rounded up; read once, because it takes as long as binding a size."""
    return tuple(_granted(root, membership))


def _granted(root: Path, membership: Path) -> Iterator[int]:
    """Yield the CPUs that each group of the process grants, rounded up; a group without a limit, or a missing one, grants all.

    A limit applies to all descendants, so each group up to the root counts. Inside a container the process's group may be
    mounted as the root itself, under which its path does not exist: then only the root is read.
    """
    for controllers, path in _groups(membership):
        if controllers == "":
            mounts, read = [root], _version_2
        elif "cpu" in controllers.split(","):
            mounts, read = [root / controllers, root / "cpu"], _version_1
        else:
            continue
        for mount in mounts:
            group = mount / path.lstrip("/")
            for folder in (group, *group.parents):
                cpus = read(folder)
                if cpus is not None:
                    yield cpus
                if folder == mount:
                    break


def _groups(membership: Path) -> list[tuple[str, str]]:
    """Return controllers (none for version 2) and path of each group; the roots of both versions if the file has no groups."""
    try:
        rows = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except (OSError, UnicodeDecodeError):
        rows = []
    groups = [(row[1], row[2]) for row in rows if len(row) == 3 and ".." not in row[2].split("/")]
    return groups or [("", "/"), ("cpu", "/")]


def _version_2(folder: Path) -> int | None:
    words = _words(folder / "cpu.max")
    return _rounded_up(*words[:2]) if len(words) >= 2 else None


def _version_1(folder: Path) -> int | None:
    quota, period = _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us")
    return _rounded_up(quota[0], period[0]) if quota and period else None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except (OSError, UnicodeDecodeError):
        return []  # no such group here, or one that may not be read: no limit that could be honoured


def _rounded_up(quota: str, period: str) -> int | None:
    """Whole CPUs; `None` where the quota is `max` or -1, which is no limit."""
    if not (quota.isdecimal() and period.isdecimal()):
        return None
    limit, each = int(quota), int(period)
    return None if limit == 0 or each == 0 else -(-limit // each)
