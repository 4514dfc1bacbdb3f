"""The ops that are loop kernels, as rows that a target registers: which of their operands a result may lie in.

They are listed, so that a report names each; element-wise ops of plugins are taken by the row of their base class. An op
whose meaning would be one kernel but which is not listed goes through its decomposition, or whatever rewrite a plugin brings.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlx_core.codegen.scalars.long import LONG
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.ir.op import Op
from rlx_core.ops import (
    along_axis,
    conversion,
    counting,
    creation,
    floating,
    fused,
    fused_loop,
    indexing,
    kinds,
    loss,
    movement,
    normalization,
    normalization_backward,
    rearrange,
    selection,
    softmax,
    structural,
)
from rlx_core.ops.convolution import conv, sliding
from rlx_core.ops.families import Family
from rlx_core.ops.pooling import positions
from rlx_core.ops.random.bits import Dropout, RandomBits
from rlx_core.ops.region import ElementwiseRegion
from rlx_core.system.records import frozen


@frozen
class LoopRow:
    """Some ops that are computed by one loop kernel.

    Attributes:
        name: Name of the row.
        in_place: Operands whose memory a result may use, because each element is read before it is written.
        is_read_in_place: Whether `meaning.is_read_in_place` is required of a node.
    """

    name: str
    ops: tuple[type[Op], ...]
    in_place: tuple[int, ...] = ()
    is_read_in_place: bool = False


def elementwise(table: ScalarTable) -> tuple[type[Op], ...]:
    """Ops of one or two operands that compute element by element."""
    return tuple(
        dict.fromkeys(
            (
                *(op for op in (*table.rows, *LONG) if issubclass(op, kinds.Elementwise)),
                *(op for op in (*Family("activation"), *Family("piecewise"))),
                conversion.Cast,
                conversion.Conjugate,
                floating.NextOnGrid,
                floating.Bitcast,
            )
        )
    )


ROWS = (
    softmax.Softmax,
    softmax.LogSoftmax,
    normalization.LayerNorm,
    normalization.RmsNorm,
    normalization.LayerNorm2d,
    normalization.GroupNorm,
    fused.FusedResidualLN,
    fused.FusedResidualRmsNorm,
    normalization_backward.LayerNormBackwardInput,
    normalization_backward.RmsNormBackwardInput,
    normalization_backward.GroupNormBackwardInput,
)
"""Ops of several loops over a row, the first operand of which a result may take over."""

OTHERS = (
    structural.Sum,
    *Family("reduction"),
    counting.CountNonzero,
    counting.AnyTrue,
    counting.AllTrue,
    fused.FusedSwiGLU,
    *Family("complex"),
    conversion.Real,
    selection.Clip,
    selection.StraightThrough,
    structural.Reshape,
    structural.Expand,
    structural.Transpose,
    movement.Narrow,
    sliding.SlidingWindows,
    conv.Conv,
    *Family("pooling.totals"),
    *Family("pooling.extremes"),
    positions.PoolPositions,
    creation.DimValue,
    creation.Iota,
    creation.Full,
    indexing.Gather,
    along_axis.TakeAlongAxis,
    loss.SoftmaxCrossEntropyWithLogits,
    loss.SoftmaxCrossEntropyBackward,
    rearrange.Tril,
    rearrange.Triu,
    RandomBits,
    Dropout,
)


def loop_rows(table: ScalarTable) -> Iterator[LoopRow]:
    """The rows of a target with this scalar code, in the order in which they are preferred."""
    yield LoopRow("loop", elementwise(table), (0, 1))
    yield LoopRow("loop_where", (selection.Where,), (1, 2))
    yield LoopRow("loop_rows", ROWS, (0,))
    yield LoopRow("loop_of", OTHERS)
    yield LoopRow("loop_elementwise", (kinds.Elementwise,), (0, 1))
    yield LoopRow("loop_unary", (kinds.UnaryFloat,), (0,))
    yield LoopRow("loop_region", (ElementwiseRegion,), tuple(range(8)))
    yield LoopRow("loop_fused", (fused_loop.FusedLoop,), tuple(range(16)), is_read_in_place=True)
    yield LoopRow("loop_fused_apart", (fused_loop.FusedLoop,))
