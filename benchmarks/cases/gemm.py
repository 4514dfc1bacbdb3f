"""Products of a batch of rows with a bound weight, at the sizes of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import rlx_core as rlx
from benchmarks.case import Case, Data, Program

SIZES = (384, 768, 1536, 3072)


def data(m: int, n: int, k: int) -> Data:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    return {"x": x, "w": w}


def program(data: Data, config: Mapping[str, Any] | None = None) -> Program:
    x, w = data["x"], data["w"]

    def product(w: Any, x: Any) -> Any:
        return x @ w

    compiled = rlx.compile(product, w, rlx.spec(f"f32[{x.shape[0]}, {x.shape[1]}]"), config=config)
    return Program(lambda: compiled(x), lambda: [compiled(x)])


def single(data: Data) -> Program:
    """The same on one thread, whatever the process may use."""
    return program(data, {"options": {"cpu.threads": 1}})


def case(m: int, n: int, k: int) -> Case:
    # Sums of k products of numbers near 1, in another order: about √k·2⁻²⁴ of the largest.
    return Case(
        f"gemm-{m}x{n}x{k}", "gemm", lambda: data(m, n, k), program, work=(2e-9 * m * n * k, "GFLOP/s"),
        rtol=1e-4, atol=1e-3, limit="peak", single=single,
    )  # fmt: skip


CASES = tuple(case(m, n, k) for m in (16, 128, 1024) for n in SIZES for k in SIZES)
SHOWN = {"gemm-16x1536x384", "gemm-128x1536x384", "gemm-1024x1536x384", "gemm-1024x3072x3072"}
FURTHER = frozenset(c for c in CASES if c.name not in SHOWN)
"""The sizes that run only when gemm is selected by name."""
