"""Decisions of attention forward before code generation: which operands are read in place, and scratch memory."""

from __future__ import annotations

from rlx_core.ops.quantized_attention import QuantizedAttention
from rlx_core.system.records import frozen
from rlx_cpu.native.attention.operands import ByPosition
from rlx_cpu.native.attention.parts import ScoreRows
from rlx_cpu.native.attention.plan import AttentionPlan, K, Q, V
from rlx_cpu.native.contract import aligned
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.llvm.stored import Stored
from rlx_cpu.native.llvm.words import Words


@frozen(eq=False)
class AttentionTile:
    """Context for the code of one row tile: its rows, its operands, and the per-thread memory."""

    score_rows: ScoreRows
    rows: int
    q: ir.LlvmValue
    keys: ir.LlvmValue
    values: ir.LlvmValue
    out: ir.LlvmValue
    scores: ir.LlvmValue
    sums: ir.LlvmValue
    maxima: ir.LlvmValue
    totals: ir.LlvmValue
    queries: ir.LlvmValue


@frozen(eq=False)
class ForwardPlan(AttentionPlan):
    """The choices for the forward pass."""

    @property
    def reads_keys(self) -> bool:
        """Whether keys are read where they lie: for so few queries, transposing them would be most of the work."""
        both = self.operand(Q), self.operand(K)
        queries = self.problem.queries
        itemsizes = self.stored.itemsize, self.key_words.stored.itemsize
        return (
            is_known(queries)
            and queries <= self.cut.sizes.few_queries
            and all(strides.feature == itemsize for strides, itemsize in zip(both, itemsizes, strict=True))
        )

    @property
    def key_words(self) -> Words:
        """The elements of keys and values in memory and in registers."""
        place = self.layout.operands[K]
        assert place is not None, "keys are required"
        return Words(Stored(self.simd, place.type.dtype))

    @property
    def has_scales(self) -> bool:
        """Whether keys and values are codes, whose scales are operands."""
        return isinstance(self.op, QuantizedAttention)

    def scale_strides(self, number: int) -> tuple[int, int, int, int]:
        """Return the strides of scales along batch entries, heads, queries and keys, in bytes."""
        *batch, first, second = self.placed.place(number).strides
        head, key = (first, second) if self.op.layout == "bhsd" else (second, first)
        return (batch[0] if batch else 0, head, 0, key)

    @property
    def copies_queries(self) -> bool:
        """Whether a tile's queries are widened before its products."""
        return not (self.stored.is_same or self.reads_keys)

    @property
    def values(self) -> ByPosition:
        """The values of a head as the right side of a product."""
        p = self.problem
        # A form for few queries has one tile, although that is not a number of its cut.
        tiles = 1 if self.reads_keys and self.placed.lengths is not None else self.cut.rows.pieces
        return ByPosition(self.key_words, self.operand(V), p.keys, p.width, self.cut.outputs, tiles)

    # -------------------------------------------------------------------------------------- memory

    @property
    def keys_nbytes(self) -> int:
        """Bytes of a head's transposed keys, packed; none where they are read in place."""
        return 0 if self.reads_keys else aligned(self.cut.key_columns * self.problem.features * self.simd.itemsize)

    @property
    def score_nbytes(self) -> int:
        """Bytes from a row of a tile's scores to the next."""
        return self.cut.block_columns * self.simd.itemsize

    @property
    def sum_nbytes(self) -> int:
        """Bytes from a row of a tile's sums to the next."""
        return self.cut.output_columns * self.simd.itemsize

    @property
    def tile_nbytes(self) -> tuple[int, ...]:
        """Bytes of a tile's scores, its sums, its rows' maxima, their totals, and of its queries if they are made words."""
        p, itemsize = self.problem, self.simd.itemsize
        rows = self.cut.rows.most or self.cut.rows.size
        queries = p.features * itemsize if self.copies_queries else 0
        by_row = (self.score_nbytes, self.sum_nbytes, itemsize, itemsize, queries)
        return tuple(aligned(rows * nbytes) for nbytes in by_row)

    @property
    def workspace(self) -> int:
        """Bytes of a thread's memory."""
        return self.keys_nbytes + self.values.nbytes + sum(self.tile_nbytes)
