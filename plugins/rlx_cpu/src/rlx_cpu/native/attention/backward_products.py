"""The five products of attention backward: u and dp of a block of queries, and its contributions to dq, dk and dv."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from rlx_core.codegen.cuts import Cut
from rlx_cpu.native.attention.backward_plan import BackwardPlan, Head
from rlx_cpu.native.attention.operands import ByPosition
from rlx_cpu.native.attention.plan import DY, K, Q
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I1
from rlx_cpu.native.llvm.cuts import by_size, start_of
from rlx_cpu.native.llvm.simd import counting, index, offset, times
from rlx_cpu.native.llvm.sizes import is_known, sized
from rlx_cpu.native.llvm.stored import Stored
from rlx_cpu.native.llvm.words import Words
from rlx_cpu.native.products.microkernel import Microkernel, MicrokernelArguments, ResultTile, Right

Kernels = dict[tuple[int, int], ir.Function]
"""Microkernels by rows and vectors."""


class BackwardProducts:
    """The microkernels of the five products, and the loops that call them.

    Args:
        plan: The choices.
        name: Prefix of functions' names.
    """

    def __init__(self, plan: BackwardPlan, name: str) -> None:
        self._plan = plan
        self._name = name
        self._made: dict[Hashable, ir.Function] = {}
        p, simd, row = plan.problem, plan.simd, plan.row_nbytes
        by_rows, by_keys, block = plan.cut.rows.sizes, plan.partition.key_rows.sizes, (row, simd.itemsize)
        k, q, dy, dq = plan.right(K), plan.right(Q), plan.right(DY), plan.result(Q)
        into_dq = {"c": (dq.position, dq.feature), "result": plan.stored, "columns": p.features}
        self._kernels: dict[str, Kernels] = {
            "u": self._of("u", by_rows, plan.cut.panels, a=plan.left(Q), c=block),
            "dp": self._of("dp", by_rows, plan.cut.panels, a=plan.left(DY), c=block),
            "dq": self._of("dq", by_rows, k.panels, a=block, right=k, **into_dq),
            "dk": self._of("dk", by_keys, q.panels, a=(simd.itemsize, row), right=q, c=self._sums(q), adds=True),
            "dv": self._of("dv", by_keys, dy.panels, a=(simd.itemsize, row), right=dy, c=self._sums(dy), adds=True),
        }

    def scores(
        self,
        b: ir.IRBuilder,
        head: Head,
        tiles: tuple[ir.LlvmValue, ir.LlvmValue],
        first: ir.LlvmValue,
        end: ir.LlvmValue,
    ) -> None:
        """`u = q·kᵀ` and `dp = do·vᵀ` of a block, up to the last key that it sees."""
        plan, p, simd = self._plan, self._plan.problem, self._plan.simd
        sides = (("u", head.q, Q, "keys", p.features, "weights"), ("dp", head.dy, DY, "values", p.width, "du"))
        with counting(b, *tiles) as tile:
            start = start_of(b, plan.cut.rows, tile)
            in_block = b.sub(start, first)
            line = times(b, in_block, plan.row_nbytes)
            with counting(b, 0, plan.cut.panels.pieces) as panel:
                vector = start_of(b, plan.cut.panels, panel)
                with b.if_then(b.icmp_signed("<", times(b, vector, simd.lanes), end)):
                    for name, left, position, packed, depth, block in sides:
                        # Rows that were widened are those of the block.
                        row = start if plan.stored.is_same else in_block
                        a = offset(b, left, (row, plan.left(position)[0]))
                        right = offset(b, head.memory[packed], (vector, simd.nbytes * depth))
                        place = offset(b, head.memory[block], line, (vector, simd.nbytes))
                        row_tile, size = (plan.cut.rows, tile), index(depth)
                        self._call(b, name, row_tile, (plan.cut.panels, panel), a, partial(_always, right), place, size)

    def dq(
        self,
        b: ir.IRBuilder,
        head: Head,
        tiles: tuple[ir.LlvmValue, ir.LlvmValue],
        first: ir.LlvmValue,
        end: ir.LlvmValue,
    ) -> None:
        """`dq = du·k` of a block, over keys before `end`."""
        plan = self._plan
        strides, right = plan.result(Q), plan.right(K)
        with counting(b, *tiles) as tile:
            start = start_of(b, plan.cut.rows, tile)
            a = offset(b, head.memory["du"], (b.sub(start, first), plan.row_nbytes))
            with counting(b, 0, right.panels.pieces) as panel:
                vector = start_of(b, right.panels, panel)
                place = offset(
                    b, head.dq, (start, strides.position), (times(b, vector, plan.cut.lanes), strides.feature)
                )
                panel_at = partial(right.panel, b, head.k_ready, vector, index(0))
                self._call(b, "dq", (plan.cut.rows, tile), (right.panels, panel), a, panel_at, place, end)

    def add(
        self, b: ir.IRBuilder, head: Head, name: str, first: ir.LlvmValue, count: ir.LlvmValue, end: ir.LlvmValue
    ) -> None:
        """Add the product of a block's transpose with rows of q or dy to dk or dv, for keys before `end`.

        Args:
            name: `dk` or `dv`.
            first: The block's first query, and `count`, how many there are.
        """
        plan, simd, key_rows = self._plan, self._plan.simd, self._plan.partition.key_rows
        is_dk = name == "dk"
        block, right = head.memory["du" if is_dk else "weights"], plan.right(Q if is_dk else DY)
        ready = head.q_ready if is_dk else head.dy_ready
        with counting(b, 0, key_rows.pieces) as tile:
            key = start_of(b, key_rows, tile)
            a = offset(b, block, (key, simd.itemsize))
            with b.if_then(b.icmp_signed("<", key, end)), counting(b, 0, right.panels.pieces) as panel:
                vector = start_of(b, right.panels, panel)
                place = offset(b, head.memory[name], (key, right.columns * simd.itemsize), (vector, simd.nbytes))
                panel_at = partial(right.panel, b, ready, vector, first)
                self._call(b, name, (key_rows, tile), (right.panels, panel), a, panel_at, place, count)

    # --------------------------------------------------------------------------------- microkernels

    def _sums(self, right: ByPosition) -> tuple[int, int]:
        """Strides of a segment's dk or dv."""
        itemsize = self._plan.simd.itemsize
        return right.columns * itemsize, itemsize

    def _of(self, name: str, heights: tuple[int, ...], panels: Cut, **more: Any) -> Kernels:
        return {
            (rows, vectors): self._emitted(self._microkernel(rows, vectors, **more), f"{name}{rows}x{vectors}")
            for rows in heights
            for vectors in panels.sizes
        }

    def _emitted(self, kernel: Microkernel, name: str) -> ir.Function:
        """Return the product's function, or that of an equal product: products often differ only in their operands."""
        result = kernel.result
        same = (kernel.rows, kernel.vectors, kernel.a_strides, kernel.right, result.strides, result.columns)
        key = *same, result.stored.dtype, kernel.words.stored.dtype, kernel.accumulates
        if key not in self._made:
            self._made[key] = kernel.emit(f"{self._name}.{name}")
        return self._made[key]

    def _microkernel(
        self,
        rows: int,
        vectors: int,
        *,
        a: tuple[int, int],
        c: tuple[int, int],
        right: ByPosition | None = None,
        result: Stored | None = None,
        columns: int | None = None,
        adds: bool = False,
    ) -> Microkernel:
        """One height and width of a product with packed panels, or with `right`; `columns` if the result ends there."""
        plain = Words.plain(self._plan.simd)
        simd = plain.simd
        if right is None:
            words, side = plain, Right(vectors * simd.nbytes, simd.nbytes)
        else:
            words, side = right.words, right.right(vectors)
        end = right.features if right is not None and right.is_partial else None
        if columns is not None and columns % simd.lanes:
            end = columns
        return Microkernel(
            words=words, rows=rows, vectors=vectors, a_strides=a,
            right=side, result=ResultTile(result or plain.stored, c, end), accumulates=adds,
        )  # fmt: skip

    def _call(
        self,
        b: ir.IRBuilder,
        name: str,
        tile: tuple[Cut, ir.LlvmValue],
        panel: tuple[Cut, ir.LlvmValue],
        a: ir.LlvmValue,
        right: Callable[[int], ir.LlvmValue],
        place: ir.LlvmValue,
        depth: ir.LlvmValue,
    ) -> None:
        """Call the microkernel of a tile's height and a panel's width; one that adds up finds earlier sums or zeros."""
        column = times(b, start_of(b, *panel), self._plan.simd.lanes)
        pitch = None if is_known(self._plan.row_nbytes) else sized(b, self._plan.row_nbytes)
        for rows in by_size(b, *tile):
            for vectors in by_size(b, *panel):
                arguments = MicrokernelArguments.alone(
                    a, right(vectors), place, depth, column, is_first=ir.LlvmConstant(I1, 0)
                )
                b.call(self._kernels[name][rows, vectors], arguments._replace(pitch=pitch).present)


def _always(panel: ir.LlvmValue, vectors: int) -> ir.LlvmValue:
    """The address of a packed panel, whatever its width."""
    return panel
