"""What attention backward decides besides before any code is made: blocks, segments, scratch memory."""

from __future__ import annotations

from attrs import frozen

from rlx_core.codegen.cuts import Cut, cut
from rlx_core.codegen.places import Place
from rlx_cpu.native.attention.operands import ByPosition
from rlx_cpu.native.attention.parts import Logits
from rlx_cpu.native.attention.plan import DY, AttentionPlan, K, Q, V
from rlx_cpu.native.contract import MOST_PARTS, aligned
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.sizes import is_known

__all__ = ["DBIAS", "BackwardPlan", "Head"]

DBIAS = 3
"""The result after dq, dk and dv."""


@frozen(eq=False)
class Head:
    """What the code of one query head is built from: its operands, results and the thread's memory.

    Attributes:
        dw: Where the head's cotangents of logits go, if a bias wants them.
    """

    batch: ir.Value
    head: ir.Value
    q: ir.Value
    dy: ir.Value
    dq: ir.Value
    q_ready: ir.Value
    dy_ready: ir.Value
    k_ready: ir.Value
    logits: Logits
    memory: dict[str, ir.Value]
    dw: ir.Value | None


@frozen(eq=False)
class BackwardPlan(AttentionPlan):
    """The choices for the backward pass.

    Attributes:
        given_segments: Into how many parts an item is cut, where whoever knows the batch says so.
    """

    given_segments: int | None = None

    @property
    def bias(self) -> Place | None:
        """The bias, if there is one: then it has a cotangent too."""
        return self.placed.place(self.placed.mask + 1) if self.placed.has_bias else None

    def right(self, position: int) -> ByPosition:
        """An operand as the right side of a product over positions."""
        p = self.problem
        positions, tiles = (p.queries, self.key_rows.pieces) if position in (Q, DY) else (p.keys, self.cut.rows.pieces)
        features = p.width if position in (V, DY) else p.features
        panels = cut(-(-features // self.cut.lanes), self.cut.outputs.size)
        return ByPosition(self.words, self.operand(position), positions, features, panels, tiles)

    def left(self, position: int) -> tuple[int, int]:
        """Bytes from a row to the next and a feature to the next, where q or dy is the left side."""
        if self.stored.is_same:
            at = self.operand(position)
            return at.position, at.feature
        features = self.problem.features if position == Q else self.problem.width
        return features * self.simd.itemsize, self.simd.itemsize

    @property
    def group(self) -> int:
        """Row tiles of a block of queries."""
        tile_nbytes = max(1, self.cut.rows.size * self.row_nbytes)
        return max(1, min(self.cut.sizes.tiles, self.cut.sizes.weights_nbytes // tile_nbytes, self.cut.rows.pieces))

    @property
    def row_nbytes(self) -> int:
        """Bytes of one row of weights: all keys, whole vectors."""
        return self.cut.key_columns * self.simd.itemsize

    @property
    def key_rows(self) -> Cut:
        """Row tiles of dk and dv."""
        return cut(self.problem.keys, self.cut.rows.size)

    @property
    def items(self) -> int:
        return self.problem.batch * self.problem.kv_heads

    @property
    def blocks(self) -> int:
        """Blocks of queries of a head."""
        return -(-self.cut.rows.pieces // self.group)

    @property
    def products(self) -> int:
        """Fused products in all."""
        p = self.problem
        return 2 * p.batch * p.heads * p.queries * p.keys * (p.features + p.width)

    @property
    def uses_threads(self) -> bool:
        """Whether threads share it; where the batch is not known, every call says so."""
        return not is_known(self.products) or self.products >= self.simd.isa.machine.serial_products

    @property
    def parts(self) -> int:
        """Into how many parts it is cut; 0 where every call says so."""
        return max(1, min(MOST_PARTS, self.items * self.segments)) if is_known(self.items) else 0

    @property
    def segments(self) -> int:
        """Into how many parts an item is cut."""
        if self.given_segments is not None:
            return self.given_segments
        sizes = self.cut.sizes
        if self.items >= sizes.fewest_parts or self.products < sizes.segment_products:
            return 1
        blocks = self.problem.heads // self.problem.kv_heads * self.blocks
        return max(1, min(blocks, -(-sizes.fewest_parts // self.items)))

    def is_uniform(self, logits: Logits) -> bool:
        """Whether a row without a visible key spreads its weight over all of them."""
        return self.op.empty_row == "uniform" and logits.may_hide

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
        rows = self.cut.rows.size * self.group
        block = rows * self.row_nbytes
        has_cap = self.op.attn_logit_softcap is not None
        widened = 0 if self.stored.is_same else rows * itemsize
        sizes = {
            "keys": self.cut.key_columns * p.features * itemsize,
            "values": self.cut.key_columns * p.width * itemsize,
            "weights": block,
            "slopes": block if has_cap else 0,
            "du": block,
            **(self.sums if self.segments == 1 else {}),
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
        return self.items * self.segments * sum(self.sums.values()) if self.segments > 1 else 0

    @property
    def logits_nbytes(self) -> int:
        """Bytes of the cotangents of a head's logits."""
        return self.problem.queries * self.row_nbytes

    @property
    def shared(self) -> int:
        """Bytes of what one phase leaves to the next: sums of segments, and cotangents of all logits for a bias."""
        p = self.problem
        return self.segment_sums + (p.batch * p.heads * self.logits_nbytes if self.bias is not None else 0)
