"""Arrays of 2³¹ and 2³² elements, where the device has the memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import ml_dtypes
import numpy as np

import rlx_core as rlx
from rlx_core import nn
from rlx_core.cli.validating.bench import Bench, Skip, expect_same_bits
from rlx_core.cli.validating.results import CheckRow
from rlx_core.device.array import DeviceArray
from rlx_core.errors import LegalizeError
from rlx_core.ir.dtypes import f16, u8
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen
from rlx_core.testing.judges import near

COUNTS: Final = ((1 << 31) - 8, (1 << 31) + 8, (1 << 32) - 8, (1 << 32) + 8)
RESIDENT_ARRAYS: Final = 3
"""Arrays of that size for which a check requires memory: the input, the result and one for workspaces."""

ENDS: Final = 1000
"""Elements at each end that are compared."""

PROGRAMS: Final[dict[str, Any]] = {
    "element-wise": lambda x: x + np.uint8(3),
    "flipped": lambda x: rlx.flip(x, axis=0),
}

BAND: Final = 3
"""Rows at each end and in the middle that are not zero and are compared."""

ROUNDINGS: Final = 16.0
"""Units in the last place of f16, relative to the largest result, where sums are not exact."""


@frozen
class RowsProgram:
    """A program on f16 with row-wise results: each row depends on the same row of its operand only.

    Attributes:
        row: The dims of a row of the operand.
        weight: The dims of a second operand; none if it has no such operand.
        width: Elements of a row of the larger one of operand and result.
        is_exact: Whether all sums are of integers that f16 represents exactly.
    """

    name: str
    function: Callable[..., Any]
    row: tuple[int, ...]
    width: int
    weight: tuple[int, ...] = ()
    is_exact: bool = True

    def rows(self, count: int) -> int:
        """Rows of about `count` elements: fewer below a power of two and more above it."""
        quotient, remainder = divmod(count, self.width)
        return quotient + (0 < remainder <= self.width // 2)


ROWS_PROGRAMS: Final = (
    RowsProgram("product, large operand", lambda x, w: x @ w, (1024,), 1024, (1024, 8)),
    RowsProgram("product, large result", lambda x, w: x @ w, (8,), 1024, (8, 1024)),
    RowsProgram("attention", lambda x: nn.attention(x, x, x, num_heads=1), (64, 64), 4096, is_exact=False),
)


def large(bench: Bench, _: str) -> Iterator[CheckRow]:
    """Element-wise ops, movements, scatters, products and attention on arrays whose ends are known."""
    for count in COUNTS:
        for name, function in PROGRAMS.items():
            yield from bench.check(f"{name} u8[{count}]", on_bytes, bench, count, name, function)
        yield from bench.check(f"scatter u8[{count}]", scattered, bench, count)
        for program in ROWS_PROGRAMS:
            rows = program.rows(count)
            yield from bench.check(f"{program.name} f16[{rows * program.width}]", on_rows, bench, program, rows)


def require_memory(bench: Bench, nbytes: int) -> None:
    """Require memory for arrays of a size.

    Raises:
        Skip: The device has less.
    """
    total, limit = bench.device.facts.memory_nbytes, bench.device.facts.largest_buffer
    if nbytes > limit or RESIDENT_ARRAYS * nbytes > total:
        raise Skip(f"the device has {total} bytes, {limit} in a buffer")


def filled(bench: Bench, type: TensorType, byte: int) -> DeviceArray:
    """An array all of whose bytes are one."""
    x = bench.device.empty(type)
    bench.device.driver.fill(x.block.buffer, x.offset, type.static_nbytes, byte)
    return x


def put_at(bench: Bench, x: DeviceArray, offset: int, data: np.ndarray) -> None:
    bench.device.driver.write(x.block.buffer, x.offset + offset, data, waits=True)


def taken_at(bench: Bench, x: DeviceArray, offset: int, into: np.ndarray) -> np.ndarray:
    bench.device.driver.read(x.block.buffer, x.offset + offset, into)
    return into


def on_device(bench: Bench, function: Callable[..., Any], *operands: Any) -> DeviceArray:
    """The result of a program, all of which the device runs.

    Raises:
        Skip: The host would run an op of it, and had to hold the arrays.
    """
    try:
        result: DeviceArray = bench.jit(function, outputs="device", host_ops=())(*operands)
    except LegalizeError as error:
        raise Skip(error.message) from None
    return result


def on_bytes(bench: Bench, count: int, name: str, function: Callable[..., Any]) -> None:
    require_memory(bench, count)
    x = filled(bench, TensorType(u8, (count,)), 7)
    head, tail = (np.arange(k, k + ENDS, dtype=np.int64).astype(np.uint8) for k in (1, 100))
    put_at(bench, x, 0, head)
    put_at(bench, x, count - ENDS, tail)
    y = on_device(bench, function, x)
    samples = [taken_at(bench, y, offset, np.empty(ENDS, np.uint8)) for offset in (0, count - ENDS, count // 2)]
    if name == "flipped":
        expected = tail[::-1], head[::-1], np.full(ENDS, 7, np.uint8)
    else:
        expected = head + np.uint8(3), tail + np.uint8(3), np.full(ENDS, 10, np.uint8)
    expect_same_bits(samples, expected, "the ends and the middle")


def scattered(bench: Bench, count: int) -> None:
    """Updates at both ends and in the middle, by indices of 64 bits."""
    require_memory(bench, count)
    x = filled(bench, TensorType(u8, (count,)), 7)
    indices = np.array([0, 5, count // 2, count - 2, count - 1], np.int64)
    updates = np.arange(20, 25, dtype=np.uint8)
    y = on_device(bench, rlx.scatter, x, bench.put(indices), bench.put(updates))
    for start in (0, count // 2 - ENDS // 2, count - ENDS):
        expected = np.full(ENDS, 7, np.uint8)
        is_here = (indices >= start) & (indices < start + ENDS)
        expected[indices[is_here] - start] = updates[is_here]
        expect_same_bits([taken_at(bench, y, start, np.empty(ENDS, np.uint8))], [expected], f"elements from {start} on")


def on_rows(bench: Bench, program: RowsProgram, rows: int) -> None:
    require_memory(bench, 2 * rows * program.width)
    rng = np.random.default_rng(31)
    x = filled(bench, TensorType(f16, (rows, *program.row)), 0)
    row_nbytes = 2 * math.prod(program.row)
    starts = (0, rows // 2, rows - BAND)
    shape = (BAND, *program.row)
    bands = [
        (rng.integers(-1, 2, shape) if program.is_exact else rng.normal(size=shape)).astype(np.float16) for _ in starts
    ]
    for start, band in zip(starts, bands, strict=True):
        put_at(bench, x, start * row_nbytes, band)
    weights = [rng.integers(-1, 2, program.weight).astype(np.float16)] if program.weight else []
    y = on_device(bench, program.function, x, *map(bench.put, weights))
    wide = [each.astype(np.float64) for each in weights]
    for start, band in zip(starts, bands, strict=True):
        expected = np.asarray(program.function(band.astype(np.float64), *wide))
        offset = start * 2 * math.prod(expected.shape[1:])
        actual = taken_at(bench, y, offset, np.empty(expected.shape, np.float16))
        if program.is_exact:
            expect_same_bits([actual], [expected.astype(np.float16)], f"rows from {start} on")
        else:
            bound = ROUNDINGS * float(ml_dtypes.finfo(np.float16).eps) * float(np.max(np.abs(expected)))  # type: ignore[no-untyped-call]
            near(actual.astype(np.float64), expected, 0.0, bound, f"rows from {start} on")
