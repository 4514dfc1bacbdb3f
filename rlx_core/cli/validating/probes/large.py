"""Arrays of 2³¹ and 2³² elements, where the device has the memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

import rlx_core as rlx
from rlx_core.cli.validating.bench import Bench, Skip, expect_same_bits
from rlx_core.cli.validating.results import CheckRow
from rlx_core.ir.dtypes import u8
from rlx_core.ir.types import TensorType

__all__ = ["large"]

COUNTS: Final = ((1 << 31) - 8, (1 << 31) + 8, (1 << 32) - 8, (1 << 32) + 8)
RESIDENT_ARRAYS: Final = 3
"""Arrays of that size for which a check requires memory: the input, the result and one for workspaces."""

WIDTH: Final = 1 << 20
ENDS: Final = 1000
"""Elements at each end that are compared."""

PROGRAMS: Final[dict[str, Any]] = {
    "element-wise": lambda x: x + np.uint8(3),
    "flipped": lambda x: rlx.flip(x, axis=0),
}


def large(bench: Bench, _: str) -> Iterator[CheckRow]:
    """Element-wise and moving kernels on bytes whose ends are known."""
    for count in COUNTS:
        for name, function in PROGRAMS.items():

            def run(count: int = count, name: str = name, function: Any = function) -> None:
                total, limit = bench.device.facts.memory_nbytes, bench.device.facts.largest_buffer
                if count > limit or RESIDENT_ARRAYS * count > total:
                    raise Skip(f"the device has {total} bytes, {limit} in a buffer")
                driver = bench.device.driver
                x = bench.device.empty(TensorType(u8, (count,)))
                driver.fill(x.block.buffer, x.offset, count, 7)
                head, tail = (np.arange(k, k + ENDS, dtype=np.int64).astype(np.uint8) for k in (1, 100))
                driver.write(x.block.buffer, x.offset, head, waits=True)
                driver.write(x.block.buffer, x.offset + count - ENDS, tail, waits=True)
                y = bench.jit(function, outputs="device")(x)
                first, last, middle = (np.empty(ENDS, np.uint8) for _ in range(3))
                for into, at in ((first, 0), (last, count - ENDS), (middle, count // 2)):
                    driver.read(y.block.buffer, y.offset + at, into)
                if name == "flipped":
                    expected = tail[::-1], head[::-1], np.full(ENDS, 7, np.uint8)
                else:
                    expected = head + np.uint8(3), tail + np.uint8(3), np.full(ENDS, 10, np.uint8)
                expect_same_bits([first, last, middle], expected, "the ends and the middle")

            yield from bench.check(f"{name} u8[{count}]", run)
