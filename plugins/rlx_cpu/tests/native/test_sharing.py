"""Inside `everything_is_shared` threads share what is much too small for it: other tests rely on that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import kernel

from rlx_core.ops.activation import exp
from rlx_core.ops.attention import Attention, AttentionBackward
from rlx_core.ops.counting import ArgMax
from rlx_core.ops.cumulative import Cumsum
from rlx_core.ops.indexing import Gather, ScatterAdd
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.sorting import SearchSorted, Sort
from rlx_core.ops.structural import Sum, Transpose
from rlx_cpu.native.attention.attention_rows import attention, attention_backward
from rlx_cpu.native.indexing.gather import emit_gather
from rlx_cpu.native.indexing.scatter import emit_scatter
from rlx_cpu.native.llvm.isa import available
from rlx_cpu.native.loops.rows import emit_loop
from rlx_cpu.native.movement.boxes import emit_move
from rlx_cpu.native.ordering.search import emit_search
from rlx_cpu.native.ordering.sorting import emit_sort
from rlx_cpu.native.products.gemm import matmul
from rlx_cpu.native.scans.cumulative import emit_running
from rlx_cpu.native.scans.positions import emit_position
from rlx_cpu.native.sharing import everything_is_shared

HEADS = {"num_heads": 2, "head_dim": 8}


def filled(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).astype("f4")


TOKENS, INDICES = filled(1, 12, 16) / 100, np.array([2, 0, 3])
SMALL: dict[str, tuple[Callable[..., Any], Any, list[np.ndarray]]] = {
    "elements": (emit_loop, exp.op(), [filled(100)]),
    "rows": (emit_loop, Sum((1,)), [filled(5, 7)]),
    "a product": (matmul, MatMul(), [filled(9, 5), filled(5, 40)]),
    "attention": (attention, Attention(**HEADS), [TOKENS] * 3),
    "cotangents": (attention_backward, AttentionBackward(**HEADS), [TOKENS] * 4),
    "a gather": (emit_gather, Gather(0), [filled(4, 6), INDICES]),
    "a scatter": (emit_scatter, ScatterAdd(4), [filled(3, 40), INDICES]),
    "a transposition": (emit_move, Transpose((1, 0)), [filled(20, 30)]),
    "positions": (emit_position, ArgMax(1), [filled(4, 6)]),
    "a scan": (emit_running, Cumsum(0), [filled(6, 70)]),
    "a long row in order": (emit_sort, Sort(0), [filled(300)]),
    "a search": (emit_search, SearchSorted(), [filled(9), filled(40)]),
}


@pytest.mark.parametrize("name", SMALL)
def test_what_is_small_is_shared_there_and_nowhere_else(name: str) -> None:
    emit, op, operands = SMALL[name]
    assert not kernel(emit, op, operands, available()[0]).emitted.uses_threads
    with everything_is_shared():
        made = kernel(emit, op, operands, available()[0])
    assert made.emitted.uses_threads
    alone, together = made(*operands, threads=1), made(*operands, threads=3)
    assert [x.tobytes() for x in alone] == [x.tobytes() for x in together]
