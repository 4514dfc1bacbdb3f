"""Every f32 there is through every function of one variable, against float64: a table of the largest errors.

    python plugins/rlx_cpu/tests/native/sweep.py [function ...] [--isa avx2]

All 2^32 inputs of a function take two minutes of a processor. The exit status is 1 if an error exceeds the function's bound.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from ulp import FUNCTIONS, GELU, bound, compiled, largest_error

SWEPT = {**FUNCTIONS, "gelu": GELU}
STRIDE = 1 << 24
"""Inputs between two words of progress."""


def sweep(name: str, isa: str) -> tuple[float, float]:
    """(the largest error in ulp, an input that has it)."""
    fast = compiled(SWEPT[name][0], "f32", isa)
    worst, where = 0.0, 0.0
    for start in range(0, 1 << 32, STRIDE):
        x = np.arange(start, start + STRIDE, dtype=np.uint32).view("f4")
        error, at = largest_error(name, fast, x)
        if error > worst:
            worst, where = error, float(x[at])
        print(f"\r{name:8} {(start + STRIDE) / 2**32:4.0%}  {worst:.3f} ulp", end="", file=sys.stderr, flush=True)
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    return worst, where


def main() -> int:
    """Sweep what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("functions", nargs="*", choices=[[], *SWEPT], help="all by default")
    parser.add_argument("--isa", default="auto")
    args = parser.parse_args()
    is_within = True
    print(f"{'function':8}  {'max ulp':>8}  at")
    for name in args.functions or SWEPT:
        worst, where = sweep(name, args.isa)
        is_within = is_within and worst <= bound(name, args.isa)
        print(f"{name:8}  {worst:8.3f}  {where!r}", flush=True)
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main())
