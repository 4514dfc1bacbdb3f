"""Kernels that compute little: each moves its operands and its result through memory, and is compared with a copy.

Bytes are counted as a perfect kernel would move them: the elements read of an operand once, the result once. The large side
lies
beyond any core's own cache. Results stay below 32 MiB, where the allocator hands out the same pages again: larger ones
are mapped afresh for every call, and then it is the system's clearing of pages that is timed (`memory-fresh` shows how long).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np
from attrs import frozen

import rlx_core as rlx
from benchmarks.case import Case, Data, Program
from rlx_core import nn
from rlx_core.ops import scatter_add

SIDE = 2048
"""Rows and columns of a matrix: 16 MiB of float32."""

FEATURES = 128
"""Floats of a row that is read or written at an index: eight cache lines."""

ROWS = SIDE * SIDE // FEATURES


@frozen
class MemoryKernel:
    """One kernel.

    Attributes:
        name: Of its case.
        function: The function that it computes.
        operands: Shapes of its float32 operands.
        result: The shape of its result.
        rows: How many rows there are to choose from, for a kernel whose last operand is indices, one a row of 128 floats.
        skipped: Elements of the operands that need not be read.
    """

    name: str
    function: Callable[..., Any]
    operands: tuple[tuple[int, ...], ...]
    result: tuple[int, ...]
    rows: int = 0
    skipped: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes read and bytes written; floats and indices have four."""
        return 4 * (sum(map(prod, (*self.operands, self.result))) + (ROWS if self.rows else 0) - self.skipped)

    def data(self) -> Data:
        rng = np.random.default_rng(0)
        arrays = [rng.random(shape, np.float32) - np.float32(0.5) for shape in self.operands]
        return {"arrays": [*arrays, rng.integers(0, self.rows, ROWS, np.int32)] if self.rows else arrays}

    def program(self, data: Data, config: Mapping[str, Any] | None = None) -> Program:
        arrays = data["arrays"]
        compiled = rlx.jit(self.function, config=config)
        return Program(lambda: compiled(*arrays), lambda: [compiled(*arrays)])

    def case(self) -> Case:
        # Sums of thousands of numbers below 1, in another order.
        return Case(
            f"memory-{self.name}", f"memory-{self.name}", self.data, self.program, work=(1e-9 * self.nbytes, "GB/s"),
            rtol=1e-4, atol=1e-3, limit="copy", single=partial(self.program, config={"options": {"cpu.threads": 1}}),
        )  # fmt: skip


def grouped(x: Any, scale: Any, shift: Any) -> Any:
    return nn.group_norm(x, 32, scale, shift)


SQUARE, TALL, TABLE, IMAGES = (SIDE, SIDE), (2 * SIDE, SIDE), (ROWS, FEATURES), (16, 64, 64, 64)

KERNELS = (
    MemoryKernel("transpose", rlx.matrix_transpose, (SQUARE,), SQUARE),
    # Heads next to the batch, as attention wants them.
    MemoryKernel("heads", lambda x: rlx.permute_dims(x, (0, 2, 1, 3)), ((8, 512, 16, 64),), (8, 16, 512, 64)),
    MemoryKernel("gather", lambda x, rows: rlx.take(x, rows, axis=0), (TABLE,), TABLE, rows=ROWS),
    MemoryKernel("scatter", lambda x, rows: scatter_add(x, rows, size=ROWS), (TABLE,), TABLE, rows=ROWS),
    MemoryKernel("sum-rows", lambda x: rlx.sum(x, axis=1), (TALL,), (2 * SIDE,)),
    MemoryKernel("sum-columns", lambda x: rlx.sum(x, axis=0), (TALL,), (SIDE,)),
    MemoryKernel("max-rows", lambda x: rlx.max(x, axis=1), (TALL,), (2 * SIDE,)),
    MemoryKernel("max-columns", lambda x: rlx.max(x, axis=0), (TALL,), (SIDE,)),
    MemoryKernel("group-norm", grouped, (IMAGES, (64,), (64,)), IMAGES),
    MemoryKernel("softmax", lambda x: nn.softmax(x), (SQUARE,), SQUARE),
    MemoryKernel("running-rows", lambda x: rlx.cumulative_sum(x, axis=1), (SQUARE,), SQUARE),
    MemoryKernel("running-columns", lambda x: rlx.cumulative_sum(x, axis=0), (SQUARE,), SQUARE),
    # Cache lines are read completely, so elements that a step leaves out are read nevertheless.
    MemoryKernel("step", lambda x: x[:, ::2], (TALL,), (2 * SIDE, SIDE // 2)),
    MemoryKernel("flip", lambda x: rlx.flip(x, axis=1), (SQUARE,), SQUARE),
    MemoryKernel("reflect", lambda x: rlx.pad(x, 3, mode="reflect"), (SQUARE,), (SIDE + 6, SIDE + 6)),
    MemoryKernel("fresh", lambda x: x + 1.0, ((2 * SIDE, 2 * SIDE),), (2 * SIDE, 2 * SIDE)),
)

CASES = tuple(kernel.case() for kernel in KERNELS)
SHOWN = {"memory-transpose", "memory-gather", "memory-sum-columns"}
FURTHER = frozenset(c for c in CASES if c.name not in SHOWN)
"""The cases that run only when memory is selected by name."""
