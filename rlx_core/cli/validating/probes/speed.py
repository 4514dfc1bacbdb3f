"""Throughput relative to a copy on the device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

import rlx_core as rlx
from rlx_core import nn
from rlx_core.cli.validating.bench import Bench
from rlx_core.cli.validating.results import CheckRow

__all__ = ["speed"]

ROW_SECONDS: Final = 20.0
SAMPLES: Final = 15
LARGEST: Final = 64 << 20
MIN_COPY_SECONDS: Final = 1e-3
"""The array is enlarged until a copy takes this long."""

WIDTH: Final = 512

PROGRAMS: Final[dict[str, tuple[Callable[..., Any], int]]] = {
    "element-wise": (lambda x: rlx.tanh(x) * 0.5 + x * x, 2),
    "sum of rows": (lambda x: rlx.sum(x, axis=1), 1),
    "sum of columns": (lambda x: rlx.sum(x, axis=0), 1),
    "softmax": (lambda x: nn.softmax(x), 2),
    "transpose": (lambda x: x.T, 2),
    "running sum": (lambda x: rlx.cumulative_sum(x, axis=1), 2),
}
"""Functions of an array, and how many times its bytes they move at least."""


def speed(bench: Bench, _: str) -> Iterator[CheckRow]:
    """Medians of calls on data that lies on the device."""
    rate = 0.0
    nbytes = 1 << 18
    source: Any = None

    def copy() -> dict[str, Any]:
        nonlocal rate, nbytes, source
        while True:
            source = bench.put(np.ones((nbytes // 4 // WIDTH, WIDTH), np.float32))
            seconds = median(bench, source.copy, 3)
            if seconds >= MIN_COPY_SECONDS or nbytes * 4 > LARGEST:
                break
            nbytes *= 4
        seconds = median(bench, source.copy, SAMPLES)
        rate = 2 * nbytes / seconds
        return {"bytes": nbytes, "seconds": seconds, "gigabytes_per_second": rate / 1e9}

    yield from bench.check("copy", copy)
    if not rate:
        return
    for name, (function, moves) in PROGRAMS.items():

        def run(function: Any = function, moves: int = moves) -> str:
            f = bench.jit(function, outputs="device")
            f(source)
            seconds = median(bench, lambda: f(source), SAMPLES)
            part = moves * nbytes / seconds / rate
            return f"{part:.2f} of a copy, {moves * nbytes / seconds / 1e9:.1f} GB/s"

        yield from bench.check(name, run)


def median(bench: Bench, call: Callable[[], Any], samples: int) -> float:
    """The median of the seconds of a call and of what it started; at most `ROW_SECONDS` of them."""
    times: list[float] = []
    end = time.monotonic() + ROW_SECONDS
    while len(times) < samples and (not times or time.monotonic() < end):
        bench.device.synchronize()
        start = time.perf_counter()
        kept = call()
        bench.device.synchronize()
        times.append(time.perf_counter() - start)
        del kept
    return statistics.median(times)
