"""The movement of one step: the boxes of its results, with the size of their elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_core.codegen.movement.boxes import Axis, Box
from rlx_core.codegen.movement.tilings import boxes_of
from rlx_core.codegen.places import Layout
from rlx_core.ir.op import Op
from rlx_core.system.records import frozen


@frozen
class MovementProblem:
    """Strided copies and fills that together are the results.

    Attributes:
        boxes: None of which overlap.
        itemsizes: Bytes of an element of each result.
    """

    boxes: tuple[Box, ...]
    itemsizes: tuple[int, ...]

    @classmethod
    def of(cls, op: Op, layout: Layout) -> MovementProblem:
        return cls(tuple(boxes_of(op, layout)), tuple(r.type.dtype.itemsize for r in layout.results))

    def __str__(self) -> str:
        parts = [f"{[a.count for a in box.axes]} of {_source(box)}" for box in self.boxes]
        return f"move {' and '.join(f'{n} bytes' for n in self.itemsizes)} each: {'; '.join(parts) or 'nothing'}"

    def run(self, operands: Sequence[np.ndarray | None], results: Sequence[np.ndarray]) -> None:
        """Move with NumPy on one-dimensional `uint8` arrays, whose first byte is the lowest address of operand or result."""
        for box in self.boxes:
            size = self.itemsizes[box.result]
            to = _view(results[box.result], size, box.to, box.axes, [a.to for a in box.axes])
            if box.operand is None:
                to[...] = np.zeros((), to.dtype)
                continue
            data = operands[box.operand]
            assert data is not None, "what is moved is there"
            to[...] = _view(data, size, box.start, box.axes, [a.source for a in box.axes])


def _source(box: Box) -> str:
    return "zeros" if box.operand is None else f"x{box.operand}"


def _view(data: np.ndarray, size: int, start: int, axes: Sequence[Axis], strides: Sequence[int]) -> np.ndarray:
    return np.ndarray([a.count for a in axes], f"V{size}", data, start, strides)
