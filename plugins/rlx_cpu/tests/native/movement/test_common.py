"""Boxes that are moved by one function for all."""

import numpy as np
import pytest
from harness import kernel

from rlx_core.ops.movement import Pad
from rlx_cpu.native.llvm.isa import available
from rlx_cpu.native.movement.boxes import emit_move

ISA = available()[0]
SHAPES = [(1, 24, 96, 8), (2, 3, 40, 70), (1, 200, 90, 33)]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_paddings_of_all_sizes_call_one_function(dtype: type) -> None:
    """Rows that are copied and rows of one element, with vectors and what is left of them, shared out by threads or not."""
    texts = set()
    for shape in SHAPES:
        x = (np.arange(np.prod(shape)) % 1000).astype(dtype).reshape(shape)
        op = Pad(lo=(0, 1, 2, 0), hi=(0, 2, 1, 0))
        made = kernel(emit_move, op, [x, np.array(7, dtype)], ISA)
        expected = np.pad(x, ((0, 0), (1, 2), (2, 1), (0, 0)), constant_values=7)
        for threads in (1, 3):
            np.testing.assert_array_equal(made(x, np.array(7, dtype), threads=threads)[0], expected)
        (apart,) = made.module.apart.values()
        texts.add(str(apart))
    assert len(texts) == 1


def test_short_rows_have_code_of_their_own() -> None:
    """A call of the C library for each would take longer than the row."""
    x = np.zeros((64, 3), np.float32)
    assert not kernel(emit_move, Pad(lo=(0, 1), hi=(0, 1)), [x, np.array(0, np.float32)], ISA).module.apart
