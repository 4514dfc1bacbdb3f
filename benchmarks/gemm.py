"""Matrix products against the machine's peak and against NumPy, through the public API.

Each shape is `x @ w` in float32 with `w` bound, compiled for one and for two threads; and in bfloat16, whose peak is twice as
high where the machine multiplies pairs of them. The peak is the rate of a loop of fused products on registers alone on one
core, times the threads: two such loops, begun from Python, often share a core. All are measured in turn, as `measure.py`
describes, so that they meet the same clock and the same neighbours, and medians are compared. NumPy is given the same number
of threads (needs `threadpoolctl`).

    python -m benchmarks.gemm [--seconds 2] [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import rlx_core as rlx
from benchmarks.case import Program
from benchmarks.machine import peak
from benchmarks.measure import measure
from rlx_core.ir.dtypes import bf16, dtype

M = (16, 128, 1024)
NK = (384, 768, 1536, 3072)
PEAK_ROUNDS = 400_000
"""Some milliseconds, as long as the larger products."""


def compiled(w: np.ndarray, m: int, threads: int) -> Callable[[np.ndarray], Any]:
    """`x @ w` with `w` bound, in its dtype."""
    return rlx.compile(
        lambda params, x: x @ params["w"],
        {"w": w},
        rlx.spec(f"{dtype(w.dtype)}[{m}, {w.shape[0]}]"),
        target="cpu",
        config={"options": {"cpu.threads": threads}},
    )


def main() -> None:
    """Print one row a shape: GFLOP/s and the share of the peak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each shape and number of threads")
    parser.add_argument("--quick", action="store_true", help="the corners only")
    chosen = parser.parse_args()
    sizes = (NK[0], NK[-1]) if chosen.quick else NK
    rng = np.random.default_rng(0)
    print(
        f"{'threads':>7} {'m':>5} {'n':>5} {'k':>5} {'peak':>7} {'rlx':>7} {'numpy':>7} {'bf16':>7} {'rlx/peak':>9} "
        f"{'rlx/numpy':>9} {'bf16/rlx':>9}"
    )
    for threads, m, n, k in product((1, 2), M, sizes, sizes):
        x, w = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
        limit = peak(1, PEAK_ROUNDS)
        assert limit is not None, "rlx-cpu's native tier has llvmlite"
        run, x_half = compiled(w, m, threads), x.astype(bf16.numpy)
        run_half = compiled(w.astype(bf16.numpy), m, threads)
        out = np.empty((m, n), np.float32)
        # Twice the error that adding k products in any order may make.
        np.testing.assert_allclose(np.asarray(run(x)), x @ w, atol=2 * k * 6e-8 * np.sqrt(k))
        with threadpool_limits(threads):
            timings = measure(
                {
                    "peak": limit.program,
                    "rlx": Program(lambda: run(x), list),  # noqa: B023
                    "numpy": Program(lambda: np.matmul(x, w, out=out), list),  # noqa: B023
                    "bf16": Program(lambda: run_half(x_half), list),  # noqa: B023
                },
                chosen.seconds,
            )
        speed = {name: 2e-6 * m * n * k / timings[name].median for name in ("rlx", "numpy", "bf16")}
        speed["peak"] = 1e3 * threads * limit.amount / timings["peak"].median
        print(
            f"{threads:7} {m:5} {n:5} {k:5} {speed['peak']:7.0f} {speed['rlx']:7.0f} {speed['numpy']:7.0f} "
            f"{speed['bf16']:7.0f} "
            f"{speed['rlx'] / speed['peak']:9.2f} {speed['rlx'] / speed['numpy']:9.2f} "
            f"{speed['bf16'] / speed['rlx']:9.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
