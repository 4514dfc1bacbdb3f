"""Products with bound weights of f32, f16, bf16, i8 and 4 bits, and of i8 by i8: f32 is the baseline of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import rlx_core as rlx
from benchmarks.case import Case, Data, Program
from rlx_core.ir.dtypes import dtype

SIZE, BLOCK = 2048, 32
INTEGERS = "i8xi8"
"""Both factors of i8, and sums of i32."""

SHIFTS = np.array([0, 4], np.uint8)[:, None]


def as_it_is(w: Mapping[str, Any]) -> Any:
    return rlx.astype(w["w"], "f32")


def of_nibbles(w: Mapping[str, Any]) -> Any:
    """Codes `[k / 2, n]`, two to a byte, and scales `[k / BLOCK, n]`."""
    pairs = rlx.bitwise_and(rlx.bitwise_right_shift(w["codes"][:, None, :], SHIFTS), np.uint8(15))
    numbers = rlx.astype(rlx.reshape(pairs, (SIZE // BLOCK, BLOCK, SIZE)), "f32") - np.float32(8)
    return rlx.reshape(numbers * w["scales"][:, None, :], (SIZE, SIZE))


def weights(kind: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    if kind == "4bit":
        codes = rng.integers(0, 256, (SIZE // 2, SIZE)).astype(np.uint8)
        return {"codes": codes, "scales": rng.standard_normal((SIZE // BLOCK, SIZE)).astype(np.float32)}
    numbers = rng.integers(-127, 128, (SIZE, SIZE))
    return {"w": numbers.astype(np.int8 if kind == INTEGERS else dtype(kind).numpy)}


KINDS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    **dict.fromkeys(("f32", "f16", "bf16", "i8"), as_it_is),
    "4bit": of_nibbles,
}


def program(kind: str, m: int, data: Data, config: Mapping[str, Any] | None = None) -> Program:
    def product(params: Mapping[str, Any], x: Any) -> Any:
        if kind == INTEGERS:
            return rlx.matmul(x, params["w"], acc_dtype=rlx.i32)
        return x @ KINDS[kind](params)

    params = {name: data[name] for name in data if name != "x"}
    element = "i8" if kind == INTEGERS else "f32"
    compiled = rlx.compile(product, params, rlx.spec(f"{element}[{m}, {SIZE}]"), config=config)
    return Program(lambda: compiled(data["x"]), lambda: [compiled(data["x"])])


def case(kind: str, m: int) -> Case:
    def data() -> Data:
        rng = np.random.default_rng(1)
        if kind == INTEGERS:
            return {"x": rng.integers(-128, 128, (m, SIZE)).astype(np.int8), **weights(kind)}
        return {"x": rng.standard_normal((m, SIZE)).astype(np.float32), **weights(kind)}

    return Case(
        f"narrow-{kind}-{m}", "narrow", data, lambda d: program(kind, m, d),
        work=(2e-9 * m * SIZE * SIZE, "GFLOP/s"), limit="peak",
        single=lambda d: program(kind, m, d, {"options": {"cpu.threads": 1}}),
    )  # fmt: skip


CASES = tuple(case(kind, m) for m in (1, 16, 128) for kind in (*KINDS, INTEGERS))
