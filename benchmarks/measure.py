"""Timing programs side by side: interleaved, warmed, in rounds that start elsewhere each time.

Machines drift. So no program is timed alone: every round times each of them once, and what disturbs a round disturbs all alike.
A program is timed in use: it runs for some milliseconds before, in which a clock that slept rises, its threads wake and its data
comes back to the caches, and a sample is the mean of as many runs as fill some milliseconds more.
Medians are compared; minima are shown because they are the times without disturbance.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attrs import field, frozen

from benchmarks.case import Case, Program
from rlx_core.errors import ConfigError, Fact

PAUSE, WARM, SAMPLE = 0.06, 0.005, 0.01
"""Seconds: until the threads of the program before have stopped spinning for work (OpenBLAS's do for 2^26 ticks of a clock), of
runs that are not timed, and of a sample."""

POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@frozen
class Timing:
    """Times of one program, in milliseconds a repetition.

    Attributes:
        parallelism: Processor time over wall time while it ran: at most the threads that it was allowed.
    """

    samples: tuple[float, ...] = field(repr=False)
    parallelism: float

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def minimum(self) -> float:
        return min(self.samples)


def limit_threads(threads: int) -> None:
    """Give this process `threads` processors and tell every thread pool; before any of them is imported.

    Raises:
        ConfigError: There are fewer processors.
    """
    for name in POOLS:
        os.environ[name] = str(threads)
    if not hasattr(os, "sched_setaffinity"):
        return  # no affinity on this system: pools are asked one by one, and pools without a query are left out
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < threads:
        raise ConfigError(
            f"bench: {threads} threads need as many processors, and this process has {len(allowed)}",
            Fact("processors", allowed),
        )
    os.sched_setaffinity(0, allowed[:threads])


def verify_threads(name: str, program: Program, threads: int) -> str | None:
    """Why a program would not run on `threads` threads; `None` if it does."""
    if program.threads is not None:
        return None if program.threads == threads else f"{name} uses {program.threads} threads, not {threads}"
    if not hasattr(os, "sched_getaffinity"):
        return f"{name} cannot be asked for its threads, and this system has no affinity to hold it to"
    available = len(os.sched_getaffinity(0))
    return (
        None if available == threads else f"{name} follows the affinity, which is {available} processors, not {threads}"
    )


def measure(
    programs: Mapping[str, Program],
    seconds: float,
    *,
    is_repeatable: bool = True,
    least: int = 5,
    max_rounds: int = 400,
) -> dict[str, Timing]:
    """Time every program until `seconds` have passed, at least `least` rounds and at most `max_rounds`."""
    samples: dict[str, list[float]] = {name: [] for name in programs}
    processor: dict[str, float] = dict.fromkeys(programs, 0.0)
    wall: dict[str, float] = dict.fromkeys(programs, 0.0)
    names = list(programs)
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < least or (rounds < max_rounds and time.perf_counter() < end):
        start = rounds % len(names)
        for name in (*names[start:], *names[:start]):
            program = programs[name]
            time.sleep(PAUSE)
            sample = sampled(program, is_repeatable)
            samples[name].append(sample.wall / sample.count * 1e3)
            processor[name] += sample.processor
            wall[name] += sample.wall
        rounds += 1
    return {n: Timing(tuple(samples[n]), processor[n] / max(wall[n], 1e-9)) for n in names}


@frozen
class Sample:
    """Runs that followed one another: how many, and the seconds of all together by the wall's and the processor's clock."""

    count: int
    wall: float
    processor: float


def sampled(program: Program, is_repeatable: bool) -> Sample:
    """A sample of a program; one run, without any before it, where it cannot be repeated at will.

    Processor seconds are 0 where another process computes.
    """
    if program.clock is not None:
        return Sample(1, program.clock(), 0.0)
    if not is_repeatable:
        return repeated(program.run, 0.0)
    repeated(program.run, WARM)
    return repeated(program.run, SAMPLE)


def repeated(run: Callable[[], object], seconds: float) -> Sample:
    """Run until so many seconds have passed, at least once."""
    used, start = time.process_time(), time.perf_counter()
    now, count = start, 0
    while not count or now - start < seconds:
        run()
        count += 1
        now = time.perf_counter()
    return Sample(count, now - start, time.process_time() - used)


def disagreement(ours: Any, theirs: Any, case: Case) -> str | None:
    """How far a peer's results are from rlx's, if that is more than the case allows."""
    if len(ours) != len(theirs):
        return f"{len(theirs)} results, not {len(ours)}"
    for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if left.shape != right.shape:
            return f"result {place} is {list(right.shape)}, not {list(left.shape)}"
        if not np.allclose(left, right, rtol=case.rtol, atol=case.atol):
            return f"result {place} differs by up to {np.max(np.abs(left - right)):.3g}"
    return None
