"""Every f32 there is through every function of one variable, against float64: a table of the largest errors.

    python plugins/rlx_cpu/tests/native/sweep.py [function ...] [--isa avx2] [--processes 1]

The float64 functions are NumPy's and SciPy's, never our own, which half of the functions of f32 are made from. They are asked
only for what is not known without them: not for -x where a function is odd or even and its results show that, nor between two
inputs for which a monotone function has one result. The exit status is 1 if an error exceeds the function's bound.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from attrs import frozen
from ulp import CANCELLING, CHUNK, FUNCTIONS, GELU, MEANINGS, Meaning, bound, compiled, largest_error

SWEPT = {name: function for name, (function, _) in {**FUNCTIONS, "gelu": GELU}.items()}
ODD = frozenset({"sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "erfinv", "cbrt"})
EVEN = frozenset({"cos", "cosh"})
MONOTONE = frozenset(FUNCTIONS) - {"sin", "cos", "tan", *CANCELLING}
"""Functions that are monotone where the sign of x is one, and no number only before or after some x."""

SIGN = np.uint32(1 << 31)
PROGRESS = 1 << 26
"""Inputs between two words of progress."""


@frozen
class Worst:
    """The largest error of a function in ulp, an input that has it, and the seconds that it took to find."""

    name: str
    error: float
    at: float
    seconds: float


def sweep(name: str, isa: str) -> Worst:
    """The largest error over all floats; errors of half an ulp or less are not told apart."""
    fast, began = compiled(SWEPT[name], "f32", isa), time.process_time()
    worst, where = 0.5, 0.0
    for start in range(0, 1 << 31, CHUNK):
        x = np.arange(start, start + CHUNK, dtype=np.uint32).view("f4")
        found, mirrored = fast(x), fast(-x)
        pairs = [(x, found)] if is_mirrored(name, found, mirrored) else [(x, found), (-x, mirrored)]
        for given, got in pairs:
            if name not in MONOTONE or not is_level(MEANINGS[name], given, got):
                worst, at = largest_error(name, got, given, worst)
                where = where if at is None else float(given[at])
        if not (start + CHUNK) % PROGRESS:
            print(f"\r{name:8} {(start + CHUNK) / 2**31:4.0%}  {worst:.3f} ulp", end="", file=sys.stderr, flush=True)
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    return Worst(name, worst, where, time.process_time() - began)


def is_mirrored(name: str, found: np.ndarray, mirrored: np.ndarray) -> bool:
    """Whether a function is odd or even, and these are its results for x and -x."""
    if name not in ODD | EVEN:
        return False
    return np.array_equal(mirrored.view(np.uint32), found.view(np.uint32) ^ (SIGN if name in ODD else np.uint32(0)))


def is_level(meaning: Meaning, x: np.ndarray, found: np.ndarray) -> bool:
    """Whether a monotone function has one result between the first and the last x, and these are all it."""
    with np.errstate(all="ignore"):
        first, last = meaning(x[[0, -1]].astype(np.float64)).astype("f4")
    if np.isnan(first) and np.isnan(last):
        return bool(np.isnan(found).all())
    return first.tobytes() == last.tobytes() and bool((found.view(np.uint32) == first.view(np.uint32)).all())


def main() -> int:
    """Sweep what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*", choices=[[], *SWEPT], help="all by default")
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="functions at once")
    args = parser.parse_args()
    is_within = True
    print(f"{'function':8}  {'max ulp':>8}  {'seconds':>7}  at")
    with ProcessPoolExecutor(args.processes) as pool:
        for found in pool.map(partial(sweep, isa=args.isa), args.functions or SWEPT):
            is_within = is_within and found.error <= bound(found.name, args.isa)
            print(f"{found.name:8}  {found.error:8.3f}  {found.seconds:7.0f}  {found.at!r}", flush=True)
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main())
