"""Decisions of attention backward before code generation: blocks, segments, scratch memory."""

from __future__ import annotations

from typing import Final

from attrs import field

from rlx_core.codegen.attention import AttentionProblem
from rlx_core.codegen.cuts import Cut, cut, numbers, unknown_cut
from rlx_core.codegen.places import Place
from rlx_core.codegen.unknown import unknown
from rlx_core.system.records import frozen
from rlx_cpu.native.attention.cut import AttentionCut, products_of
from rlx_cpu.native.attention.operands import ByPosition
from rlx_cpu.native.attention.parts import Logits
from rlx_cpu.native.attention.plan import DY, AttentionPlan, K, Q, V
from rlx_cpu.native.contract import MOST_PARTS, aligned
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.sizes import is_known

DBIAS = 3
"""The result after dq, dk and dv."""


_GROUP, _BLOCKS, _SEGMENTS = map(unknown, ("queries_group", "queries_blocks", "queries_segments"))
_KEY_ROWS: Final = "key_rows"


@frozen
class BackwardCut:
    """The partition of the row tiles of a head's queries.

    Attributes:
        group: Row tiles of a block of queries.
        blocks: Blocks of queries of a head.
        segments: Number of segments into which an item is split.
        key_rows: Row tiles of dk and dv.
    """

    group: int
    blocks: int
    segments: int
    key_rows: Cut

    @classmethod
    def of(cls, problem: AttentionProblem, cut_: AttentionCut) -> BackwardCut:
        p, sizes = problem, cut_.sizes
        tile_nbytes = max(1, cut_.rows.size * cut_.key_columns * p.dtype.itemsize)
        group = max(1, min(sizes.tiles, sizes.weights_nbytes // tile_nbytes, cut_.rows.pieces))
        blocks, items, segments = -(-cut_.rows.pieces // group), p.batch * p.kv_heads, 1
        if 0 < items < sizes.fewest_parts and 2 * products_of(p) >= sizes.segment_products:
            segments = max(1, min(p.heads // p.kv_heads * blocks, -(-sizes.fewest_parts // items)))
        return cls(group, blocks, segments, cut(p.keys, cut_.rows.size))

    @classmethod
    def for_all(cls, cut_: AttentionCut, *, has_segments: bool) -> BackwardCut:
        """Return the partition of a problem of unknown sizes, which are the run-time values of `numbers`."""
        return cls(_GROUP, _BLOCKS, _SEGMENTS if has_segments else 1, unknown_cut(_KEY_ROWS, cut_.rows.most))

    @property
    def numbers(self) -> dict[str, int]:
        """Values of the unknown numbers for known sizes."""
        query_sizes = {"queries_group": self.group, "queries_blocks": self.blocks, "queries_segments": self.segments}
        return {**query_sizes, **numbers(_KEY_ROWS, self.key_rows)}


@frozen(eq=False)
class Head:
    """Context for the code of one query head: operands, results and per-thread memory.

    Attributes:
        dw: Address of the head's cotangents of logits, if a bias needs a gradient.
    """

    batch: ir.LlvmValue
    head: ir.LlvmValue
    q: ir.LlvmValue
    dy: ir.LlvmValue
    dq: ir.LlvmValue
    q_ready: ir.LlvmValue
    dy_ready: ir.LlvmValue
    k_ready: ir.LlvmValue
    logits: Logits
    memory: dict[str, ir.LlvmValue]
    dw: ir.LlvmValue | None


@frozen(eq=False)
class BackwardPlan(AttentionPlan):
    """The choices for the backward pass."""

    partition: BackwardCut = field()

    @partition.default
    def _partition(self) -> BackwardCut:
        return BackwardCut.of(self.problem, self.cut)

    @property
    def bias(self) -> Place | None:
        """The bias, if there is one: then it has a cotangent too."""
        return self.placed.place(self.placed.mask + 1) if self.placed.has_bias else None

    def right(self, position: int) -> ByPosition:
        """An operand as the right side of a product over positions."""
        p = self.problem
        positions, tiles = (
            (p.queries, self.partition.key_rows.pieces) if position in (Q, DY) else (p.keys, self.cut.rows.pieces)
        )
        features = p.width if position in (V, DY) else p.features
        panels = cut(-(-features // self.cut.lanes), self.cut.outputs.size)
        return ByPosition(self.words, self.operand(position), positions, features, panels, tiles)

    def left(self, position: int) -> tuple[int, int]:
        """Bytes from a row to the next and a feature to the next, where q or dy is the left side."""
        if self.stored.is_same:
            strides = self.operand(position)
            return strides.position, strides.feature
        features = self.problem.features if position == Q else self.problem.width
        return features * self.simd.itemsize, self.simd.itemsize

    @property
    def row_nbytes(self) -> int:
        """Bytes of one row of weights: all keys, whole vectors."""
        return self.cut.key_columns * self.simd.itemsize

    @property
    def items(self) -> int:
        return self.problem.batch * self.problem.kv_heads

    @property
    def has_segments(self) -> bool:
        """Whether an item is cut."""
        return self.partition.segments != 1

    @property
    def uses_threads(self) -> bool:
        """Whether the work is split over threads; with unknown sizes this is decided per call."""
        products = 2 * products_of(self.problem)
        return not is_known(products) or products >= self.simd.isa.machine.serial_products

    @property
    def parts(self) -> int:
        """The number of parts into which the work is split; 0 if this is decided per call."""
        items = self.items * self.partition.segments
        return max(1, min(MOST_PARTS, items)) if is_known(items) else 0

    def is_uniform(self, logits: Logits) -> bool:
        """Return whether a row without a visible key spreads its weight over all of them."""
        return self.op.empty_row == "uniform" and logits.problem.may_hide

    # -------------------------------------------------------------------------------------- memory

    @property
    def sums(self) -> dict[str, int]:
        """Bytes in which a segment adds up dk and dv."""
        keys, itemsize = self.problem.keys, self.simd.itemsize
        columns = {"dk": self.right(Q).columns, "dv": self.right(DY).columns}
        return {name: aligned(keys * count * itemsize) for name, count in columns.items()}

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of each part of a thread's workspace."""
        p, itemsize = self.problem, self.simd.itemsize
        rows = self.cut.rows.size * self.partition.group
        block = rows * self.row_nbytes
        has_cap = self.op.attn_logit_softcap is not None
        widened = 0 if self.stored.is_same else rows * itemsize
        sizes = {
            "keys": self.cut.key_columns * p.features * itemsize,
            "values": self.cut.key_columns * p.width * itemsize,
            "weights": block,
            "slopes": block if has_cap else 0,
            "du": block,
            **(self.sums if not self.has_segments else {}),
            "q": self.right(Q).nbytes,
            "dy": self.right(DY).nbytes,
            "k": self.right(K).nbytes,
            "q_rows": widened * p.features,
            "dy_rows": widened * p.width,
        }
        return {name: aligned(nbytes) for name, nbytes in sizes.items()}

    @property
    def own(self) -> int:
        """Bytes of a thread's workspace."""
        return sum(self.memory.values())

    @property
    def segment_sums(self) -> int:
        """Bytes in which all segments add up dk and dv, if there are several."""
        return self.items * self.partition.segments * sum(self.sums.values()) if self.has_segments else 0

    @property
    def logits_nbytes(self) -> int:
        """Bytes of the cotangents of a head's logits."""
        return self.problem.queries * self.row_nbytes

    @property
    def shared(self) -> int:
        """Bytes passed from one phase to the next: sums of segments, and cotangents of all logits for a bias."""
        p = self.problem
        return self.segment_sums + (p.batch * p.heads * self.logits_nbytes if self.bias is not None else 0)
