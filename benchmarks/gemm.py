"""Matrix products against the machine's peak and against NumPy, through the public door.

Each shape is `x @ w` in float32 with `w` bound, compiled for one and for two threads; and in bfloat16, whose peak is twice as
high where the machine multiplies pairs of them. The peak is what a loop of fused products
on registers alone reaches on as many threads. All three are measured in turn, so that they meet the same
clock and the same neighbours; medians are compared. NumPy is given the same number of threads (needs `threadpoolctl`).

    python benchmarks/gemm.py [--seconds 2] [--quick]
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
from llvmlite import ir
from threadpoolctl import threadpool_limits

import rlx_core as rlx
from rlx_core.ir.dtypes import bf16, dtype, f32
from rlx_cpu.native.build import I64, POINTER, VOID
from rlx_cpu.native.isa import host_isa
from rlx_cpu.native.jit import compile_module, new_module
from rlx_cpu.native.simd import Simd, index

M = (16, 128, 1024)
NK = (384, 768, 1536, 3072)
ROUNDS = 200_000
SETTLE = 0.03
"""Seconds after which the threads of every pool here have gone to sleep."""

CHAINS = 12
"""Independent sums: enough to hide the latency of a fused product, few enough for 16 registers."""


class Peak:
    """A loop of fused products that touches no memory."""

    def __init__(self) -> None:
        isa = host_isa()
        assert isa is not None, "the native tier knows this machine"
        module = new_module("peak")
        simd = Simd(module, isa, f32)
        self._code = compile_module(_registers_only(module, simd), isa)
        self._run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._code.address("peak"))
        self._out = [np.zeros(64, np.float32) for _ in range(2)]
        self.flops = 2 * CHAINS * simd.lanes * ROUNDS

    def __call__(self, thread: int = 0) -> None:
        self._run(self._out[thread].ctypes.data)


def _registers_only(module: ir.Module, simd: Simd) -> ir.Module:
    function = ir.Function(module, ir.FunctionType(VOID, [POINTER]), "peak")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    entry, loop, done = b.block, b.append_basic_block("loop"), b.append_basic_block("done")
    b.branch(loop)
    b.position_at_end(loop)
    left = b.phi(I64)
    sums = [b.phi(simd.vector) for _ in range(CHAINS)]
    factor, term = simd.constant(0.999), simd.constant(0.5)
    following = [simd.multiply_add(b, s, factor, term) for s in sums]
    remaining = b.sub(left, index(1))
    for phi, first, again in (
        (left, index(ROUNDS), remaining),
        *((s, simd.constant(float(i)), n) for i, (s, n) in enumerate(zip(sums, following, strict=True))),
    ):
        phi.add_incoming(first, entry)
        phi.add_incoming(again, loop)
    b.cbranch(b.icmp_signed(">", remaining, index(0)), loop, done)
    b.position_at_end(done)
    total = following[0]
    for value in following[1:]:
        total = b.fadd(total, value)
    simd.store(b, total, function.args[0])
    b.ret_void()
    return module


def compiled(w: np.ndarray, m: int, threads: int) -> Callable[[np.ndarray], Any]:
    """`x @ w` with `w` bound, in its dtype."""
    return rlx.compile(
        lambda params, x: x @ params["w"],
        {"w": w},
        rlx.spec(f"{dtype(w.dtype)}[{m}, {w.shape[0]}]"),
        target="cpu",
        config={"options": {"cpu.threads": threads}},
    )


def measure(runs: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Median seconds of each, taken in turn."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < 5:
        for name, run in runs.items():
            # Threads of the one before are still spinning for work; then this one's own are woken and its operands fetched.
            time.sleep(SETTLE)
            run()
            run()
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    """Print one row a shape: GFLOP/s and the share of the peak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each shape and number of threads")
    parser.add_argument("--quick", action="store_true", help="the corners only")
    chosen = parser.parse_args()
    sizes = (NK[0], NK[-1]) if chosen.quick else NK
    rng = np.random.default_rng(0)
    peak = Peak()
    print(
        f"{'threads':>7} {'m':>5} {'n':>5} {'k':>5} {'peak':>7} {'rlx':>7} {'numpy':>7} {'bf16':>7} {'rlx/peak':>9} "
        f"{'rlx/numpy':>9} {'bf16/rlx':>9}"
    )
    with ThreadPoolExecutor(2) as pool:
        for threads, m, n, k in product((1, 2), M, sizes, sizes):
            x, w = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
            run, x_half = compiled(w, m, threads), x.astype(bf16.numpy)
            run_half = compiled(w.astype(bf16.numpy), m, threads)
            out = np.empty((m, n), np.float32)
            # Twice the error that adding k products in any order may make.
            np.testing.assert_allclose(np.asarray(run(x)), x @ w, atol=2 * k * 6e-8 * np.sqrt(k))
            with threadpool_limits(threads):
                found = measure(
                    {
                        "peak": lambda: list(pool.map(peak, range(threads))),  # noqa: B023  run before the next turn
                        "rlx": lambda: run(x),  # noqa: B023
                        "numpy": lambda: np.matmul(x, w, out=out),  # noqa: B023
                        "bf16": lambda: run_half(x_half),  # noqa: B023
                    },
                    chosen.seconds,
                )
            flops = {"peak": peak.flops * threads, **dict.fromkeys(("rlx", "numpy", "bf16"), 2 * m * n * k)}
            speed = {name: flops[name] / t / 1e9 for name, t in found.items()}
            print(
                f"{threads:7} {m:5} {n:5} {k:5} {speed['peak']:7.0f} {speed['rlx']:7.0f} {speed['numpy']:7.0f} "
                f"{speed['bf16']:7.0f} "
                f"{speed['rlx'] / speed['peak']:9.2f} {speed['rlx'] / speed['numpy']:9.2f} "
                f"{speed['bf16'] / speed['rlx']:9.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
