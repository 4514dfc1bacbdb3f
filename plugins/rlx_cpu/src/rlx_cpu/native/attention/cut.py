"""The blocking of attention: a head's queries into row tiles and its keys into panels, as in a matrix product."""

from __future__ import annotations

from typing import Final

from attrs import evolve

from rlx_core.codegen.attention import AttentionProblem
from rlx_core.codegen.cuts import Cut, cut, numbers, unknown_cut
from rlx_core.codegen.unknown import unknown
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import MOST_PARTS
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.machine import AttentionSizes
from rlx_cpu.native.products.gemm_tiles import TileShape, tile_for

_BLOCK, _GROUP = map(unknown, ("block", "group"))


def _any_size(problem: AttentionProblem, isa: Isa) -> TileShape:
    """The tile for sizes that are not known: there are enough keys, and enough queries unless it is known how many."""
    queries = problem.queries if is_known(problem.queries) else DEFAULT_QUERIES
    return tile_for(max(queries, 1), DEFAULT_QUERIES, isa.lanes(problem.dtype), isa.registers)


def products_of(problem: AttentionProblem) -> int:
    """Return the fused products of the forward pass; the backward pass has twice as many."""
    p = problem
    return p.batch * p.heads * p.queries * p.keys * (p.features + p.width)


DEFAULT_QUERIES: Final = 128
"""Queries and keys for which tiles of unknown sizes are made."""


@frozen
class AttentionCut:
    """The cut of one attention.

    Attributes:
        rows: Row tiles over the queries of a head.
        panels: Panels over its keys, in vectors.
        block: Panels of a block of keys.
        outputs: Panels over the features of a value, in vectors.
        group: Row tiles of an item.
    """

    problem: AttentionProblem
    sizes: AttentionSizes
    lanes: int
    rows: Cut
    panels: Cut
    block: int
    outputs: Cut
    group: int

    @classmethod
    def of(cls, problem: AttentionProblem, isa: Isa) -> AttentionCut:
        p, lanes = problem, isa.lanes(problem.dtype)
        tile = tile_for(max(p.queries, 1), max(p.keys, 1), lanes, isa.registers)
        return cls._with(problem, isa, tile)

    @classmethod
    def for_all(cls, problem: AttentionProblem, isa: Isa) -> AttentionCut:
        """Return the partition of a problem of unknown sizes, which are the run-time values of `numbers`."""
        lanes, sizes, tile = isa.lanes(problem.dtype), isa.machine.attention, _any_size(problem, isa)
        known = cls._with(evolve(problem, batch=1, queries=tile.rows, keys=tile.vectors * lanes), isa, tile)
        rows, panels = unknown_cut("queries", tile.rows), unknown_cut("keys", tile.vectors)
        return cls(problem, sizes, lanes, rows, panels, _BLOCK, known.outputs, _GROUP)

    def numbers(self, problem: AttentionProblem, isa: Isa) -> tuple[AttentionCut, dict[str, int]]:
        """Return the same partition for a problem of known sizes, and the values of the unknown numbers for it."""
        known = self._with(problem, isa, _any_size(self.problem, isa))
        cuts = {**numbers("queries", known.rows), **numbers("keys", known.panels)}
        return known, {**cuts, "block": known.block, "group": known.group}

    @classmethod
    def _with(cls, problem: AttentionProblem, isa: Isa, tile: TileShape) -> AttentionCut:
        p, lanes, sizes = problem, isa.lanes(problem.dtype), isa.machine.attention
        rows = cut(p.queries, tile.rows)
        panels = cut(-(-p.keys // lanes), tile.vectors)
        # As many accumulators as fit into registers together with one vector of A and one of B for each column.
        max_outputs = min((isa.registers - 1) // (tile.rows + 1), 8)
        block = max(1, sizes.row_nbytes // (panels.size * lanes * p.dtype.itemsize))
        group = sizes.tiles
        while group > 1 and p.batch * p.heads * -(-rows.pieces // group) < sizes.items:
            group //= 2
        block, outputs = min(block, max(panels.pieces, 1)), cut(-(-p.width // lanes), max_outputs)
        return cls(p, sizes, lanes, rows, panels, block, outputs, group)

    @property
    def is_known(self) -> bool:
        """Whether sizes are."""
        return not self.rows.most

    @property
    def row_items(self) -> int:
        """Items of a head."""
        return -(-self.rows.pieces // self.group)

    @property
    def items(self) -> int:
        return self.problem.batch * self.problem.heads * self.row_items

    @property
    def parts(self) -> int:
        """Number of parts of the items: heads that share keys stay together if there are enough of them."""
        shared = self.problem.batch * self.problem.kv_heads
        return max(1, min(MOST_PARTS, shared if shared >= self.sizes.fewest_parts else self.items))

    @property
    def blocks(self) -> int:
        """Blocks of keys; more than one where that is not known."""
        if not self.is_known:
            return 2
        return -(-self.panels.pieces // self.block)

    @property
    def block_columns(self) -> int:
        """Keys of the widest block, whole vectors."""
        if not self.is_known:
            return max(self.panels.most * self.lanes, self.sizes.row_nbytes // self.problem.dtype.itemsize)
        return self.panels.size * self.block * self.lanes

    @property
    def output_columns(self) -> int:
        """Features of a value, whole vectors."""
        return self.outputs.start(self.outputs.pieces) * self.lanes

    @property
    def key_columns(self) -> int:
        """All keys, whole vectors."""
        if not self.is_known:
            return -(-self.problem.keys // self.lanes) * self.lanes
        return self.panels.start(self.panels.pieces) * self.lanes
