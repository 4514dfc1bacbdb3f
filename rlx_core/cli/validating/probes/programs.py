"""Whole programs, one for each kind of kernel, against the interpreter in NumPy; and the same bits in a second process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from rlx_core.cli.validating.bench import Bench, Skip, expect_same_bits
from rlx_core.cli.validating.results import CheckRow
from rlx_core.system.record_files import appended_records
from rlx_core.testing.device_programs import PROGRAMS
from rlx_core.testing.judges import near
from rlx_core.testing.special_points import same_bits

SHAPES: Final = ((6, 8), (7, 33), (65, 72))
"""Of the three sizes; widths that the two heads of `attention` can share are in `DIVISIBLE`."""

DIVISIBLE: Final = {(7, 33): (7, 34)}
NARROWER: Final = ("drawn",)
"""Programs of one shape alone."""


def inputs_of(shape: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Values in odd strides at an odd offset, and indices."""
    rng = np.random.default_rng([seed, *shape])
    padded = rng.uniform(-2, 2, (shape[0] + 1, 3 * shape[1] + 1)).astype(np.float32)
    return padded[1:, 1::3], np.array([1, 3, 3, 5])


def outputs_of(bench: Bench, function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """The program's result on the device; in every call the same bits.

    Raises:
        Skip: Nothing of it runs on the device.
    """
    f = bench.jit(function)
    result = np.asarray(f(*arrays))
    tiers = f.report.tiers
    if tiers is not None and tiers.counts["host"] and tiers.counts["host"] == len(f.executables[0].lir.steps):
        raise Skip("runs on the host: the target has no kernel")
    for _ in range(3):
        expect_same_bits([np.asarray(f(*arrays))], [result], "the same program, called again")
    return result


def expected_of(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """The program's result by the interpreter, op by op in NumPy."""
    return np.asarray(function(*arrays))


def shapes_of(name: str) -> tuple[tuple[int, ...], ...]:
    if name in NARROWER:
        return SHAPES[:1]
    return tuple(DIVISIBLE.get(s, s) if "attention" in name else s for s in SHAPES)


def programs(bench: Bench, _: str) -> Iterator[CheckRow]:
    """Every program at three sizes, and with a NaN."""

    def run(function: Any, x: np.ndarray, indices: np.ndarray) -> dict[str, Any]:
        outputs = outputs_of(bench, function, x, indices)
        expected = expected_of(function, x, indices)
        scale = float(np.max(np.abs(expected), initial=1.0)) if expected.dtype.kind == "f" else 0.0
        is_float = expected.dtype.kind in "fc"
        near(outputs, expected, 1e-4 * is_float, 2e-5 * scale, "against NumPy")
        return {"sha256": digest_of(outputs)}

    def run_nan(function: Any, x: np.ndarray, indices: np.ndarray) -> None:
        outputs, expected = outputs_of(bench, function, x, indices), expected_of(function, x, indices)
        lost = int(np.sum(np.isnan(expected) & ~np.isnan(outputs)))
        more = int(np.sum(~np.isnan(expected) & np.isnan(outputs)))
        if lost or more:
            raise AssertionError(f"of one NaN, {lost} are lost in the result and {more} are added")

    for name, function in PROGRAMS.items():
        for shape in shapes_of(name):
            yield from bench.check(f"{name} {list(shape)}", run, function, *inputs_of(shape))
        if name in NOT_A_NUMBER:
            x, indices = inputs_of(SHAPES[1])
            x = x.copy()
            x[3, 5] = np.nan
            yield from bench.check(f"{name} with a NaN", run_nan, function, x, indices)


def digest_of(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


NOT_A_NUMBER: Final = ("product", "norm", "sums", "sort", "running", "moved", "loop", "scatter")
"""Programs that are defined for a NaN."""


def repeat(bench: Bench, _: str) -> Iterator[CheckRow]:
    """The same bits as in the step `programs`, which was another process; or in two calls, if that did not run."""
    stored = appended_records(bench.folder / "rows" / "programs.jsonl", CheckRow)
    before = {row.name: row for row in stored if "sha256" in row.facts}

    def run(label: str, function: Any, x: np.ndarray, indices: np.ndarray) -> str:
        f = bench.jit(function)
        first = np.asarray(f(x, indices))
        for _ in range(2):
            second = np.asarray(f(x, indices))
            different = int(np.sum(~same_bits(second, first)))
            if different:
                raise AssertionError(f"{different} of {second.size} elements differ in the second run")
        if label in before and before[label].facts["sha256"] != digest_of(first):
            raise AssertionError("another process computed other bits")
        return "in two processes" if label in before else "in one process"

    for name, function in PROGRAMS.items():
        for shape in shapes_of(name)[1:] or shapes_of(name):
            label = f"{name} {list(shape)}"
            yield from bench.check(label, run, label, function, *inputs_of(shape))
