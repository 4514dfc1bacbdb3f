"""The function of a product: its microkernels, the driver around them, and the packing before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rlx_core.codegen.places import Layout
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import Emitted, HoistedPack, Pack
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import KERNEL, OUTER
from rlx_cpu.native.llvm.cuts import pieces_of
from rlx_cpu.native.llvm.simd import Simd, counting, index, offset, pointer_at, share
from rlx_cpu.native.llvm.sizes import is_known, sized
from rlx_cpu.native.products.entries import b_offset, entry_offset
from rlx_cpu.native.products.epilogue import GemmEpilogue
from rlx_cpu.native.products.gemm_common import call_common, kind_of
from rlx_cpu.native.products.gemm_plan import ProductPlan
from rlx_cpu.native.products.gemm_rows import PACKED_STEPS, PackedRows, row_strides
from rlx_cpu.native.products.gemm_tiles import UNROLL, chains_of
from rlx_cpu.native.products.gemm_work import GemmBuffers, Work
from rlx_cpu.native.products.inner_loops import call_function
from rlx_cpu.native.products.microkernel import Microkernel, ResultTile, Right, Runs
from rlx_cpu.native.products.panel_load import PanelLoad

MakeEpilogue = Callable[[Simd, ir.IRBuilder, ir.LlvmValue], GemmEpilogue]
"""Builds the stages inside a microkernel, from the buffers that the kernel is given."""


@frozen(eq=False)
class GemmEmitter:
    """One product while its function is emitted."""

    plan: ProductPlan
    layout: Layout
    name: str
    epilogue: MakeEpilogue

    @property
    def work(self) -> Work:
        return Work(self.plan)

    def emit(self) -> Emitted:
        plan, p = self.plan, self.plan.product
        is_empty = plan.symbolic_blocks is None and not (p.m and p.n and p.entries)
        load = None
        if p.load is not None and p.k and not is_empty:
            buffers_count = len(self.layout.operands) + len(self.layout.results)
            load = PanelLoad.of(plan, plan.words.simd.module, self.name, buffers_count)
        b = ir.new_function(plan.words.simd.module, KERNEL, self.name)
        if is_empty:
            b.ret_void()
            return Emitted(self.name, uses_threads=False)
        buffers, part, parts, thread = b.function.args
        addresses, kernels = self._addresses(b, buffers, thread), self._microkernels()
        kind = kind_of(plan)
        if kind is not None:
            call_common(plan, kind, b, addresses, part, parts, kernels)
        else:
            Work(plan, load).items(b, addresses, part, parts, partial(call_function, plan, kernels))
            if plan.is_outer:
                b.function.attributes.add(OUTER)
        b.ret_void()
        packs: tuple[Pack, ...] = ()
        hoisted: tuple[HoistedPack, ...] = ()
        if plan.panels == "ahead":
            packs = (Pack(1, plan.packed_nbytes * p.b_entries, plan.words.form, plan.blocks.widths),)
        elif load is not None:
            packs = load.packs
        elif plan.panels == "held":
            hoisted = (HoistedPack(1, plan.packed_nbytes * p.b_entries, self._before_loop()),)
        return Emitted(
            function=self.name,
            packs=packs,
            held=hoisted,
            workspace=plan.thread_nbytes,
            shared_workspace=plan.shared,
            uses_threads=plan.uses_threads,
            parts=plan.parts,
            prologue=self._prologue() if plan.shared != 0 else None,
            notes={
                "tile": plan.blocks.tile,
                "depth": str(plan.blocks.depth)
                if plan.symbolic_blocks is not None
                else plan.blocks.depth * plan.words.per_word,
                "panels": plan.panels,
                **({"rows": plan.rows} if plan.rows != "direct" else {}),
                **({} if plan.words.is_single else {"products": plan.words.kind}),
                **({} if p.load is None else {"load": str(p.load)}),
            },
        )

    def _prologue(self) -> str:
        """The function that packs what all items read: panels of B, rows of A."""
        plan, name = self.plan, f"{self.name}.pack"
        b = ir.new_function(plan.words.simd.module, KERNEL, name)
        buffers, part, parts, _ = b.function.args
        shared = pointer_at(b, buffers, len(self.layout.operands) + len(self.layout.results))
        if plan.shared_panels != 0:
            self._pack_panels(b, pointer_at(b, buffers, 1), shared, part, parts)
        if plan.shared_rows != 0:
            self._pack_rows(b, pointer_at(b, buffers, 0), shared, part, parts)
        b.ret_void()
        return name

    def _before_loop(self) -> str:
        """The function that packs all of B where the loop around the product keeps it."""
        name = f"{self.name}.hold"
        b = ir.new_function(self.plan.words.simd.module, KERNEL, name)
        buffers, part, parts, _ = b.function.args
        self._pack_panels(b, pointer_at(b, buffers, 1), self._persistent_panels(b, buffers), part, parts)
        b.ret_void()
        return name

    def _pack_panels(
        self, b: ir.IRBuilder, source: ir.LlvmValue, to: ir.LlvmValue, part: ir.LlvmValue, parts: ir.LlvmValue
    ) -> None:
        """A part's share of packing B."""
        plan, p, panels = self.plan, self.plan.product, self.plan.blocks.panels
        with counting(b, *share(b, p.b_entries * panels.pieces, part, parts)) as unit:
            panel, matrix = b.srem(unit, index(panels.pieces)), b.sdiv(unit, index(panels.pieces))
            place = offset(b, to, (matrix, plan.packed_nbytes))
            self.work.pack_panel(b, panel, offset(b, source, b_offset(b, p, matrix)), self.work.panel(b, panel, place))

    def _pack_rows(
        self, b: ir.IRBuilder, a: ir.LlvmValue, shared: ir.LlvmValue, part: ir.LlvmValue, parts: ir.LlvmValue
    ) -> None:
        """A part's share of packing A: copies tile by tile, transposed rows by ranges of k."""
        plan, p = self.plan, self.plan.product
        tiles = plan.blocks.rows.pieces
        by_tile = plan.rows == "copied"
        rounds = tiles if by_tile else -(-plan.k // PACKED_STEPS)
        with counting(b, *share(b, p.entries * rounds, part, parts)) as unit:
            turn, entry = b.srem(unit, sized(b, rounds)), b.sdiv(unit, sized(b, rounds))
            rows = PackedRows(plan, offset(b, a, entry_offset(b, p, entry, p.a)), self.work.rows_of(b, shared, entry))
            if by_tile:
                rows.pack(b, (turn, b.add(turn, index(1))), index(0), sized(b, plan.k))
            else:
                low, high = pieces_of(b, turn, PACKED_STEPS, plan.k)
                rows.pack(b, (index(0), sized(b, tiles)), low, high)

    def _microkernels(self) -> dict[tuple[int, int], ir.Function]:
        """The inner loop for every height and width that occurs."""
        plan, p, words, tiles = self.plan, self.plan.product, self.plan.words, self.plan.blocks
        is_partial = p.n % words.simd.lanes != 0
        is_direct = plan.panels == "direct"
        # Blocks of K are multiples of the unrolled length wherever their depth is a run-time argument.
        depth = tiles.depth if plan.symbolic_blocks is None and plan.splits_depth else 0
        lengths = (plan.run,) if plan.run else (plan.k, depth)
        functions = {}
        for rows in tiles.rows.sizes:
            for vectors in tiles.panels.sizes:
                chains = chains_of(rows, tiles.panels.start(tiles.panels.pieces))
                unroll = plan.unroll(rows, vectors) if chains == 1 else UNROLL
                functions[rows, vectors] = Microkernel(
                    words=words,
                    rows=rows,
                    vectors=vectors,
                    a_strides=row_strides(plan, rows),
                    pair_stride=plan.pair_stride,
                    right=Right(
                        p.b.by_row * words.per_word if is_direct else vectors * plan.vector_nbytes,
                        words.stored.itemsize if is_direct else plan.vector_nbytes,
                        is_masked=is_partial and is_direct,
                        makes_words=plan.makes_words,
                        is_packed=not is_direct,
                        has_head=bool(plan.head),
                    ),
                    result=ResultTile(
                        plan.result,
                        (p.c.by_row, p.c.by_column),
                        columns=p.n if is_partial else None,
                        sums_stride=vectors * words.nbytes if plan.parks_sums else None,
                        is_prefetched=plan.prefetches_result,
                    ),
                    accumulates=plan.splits_depth,
                    is_even=plan.k != 0 and all(is_known(n) and n % unroll == 0 for n in lengths),
                    unroll=unroll,
                    chains=chains,
                    runs=None if plan.run is None else Runs(plan.run, plan.runs),
                    sharers=plan.sharers,
                    epilogue=self.epilogue,
                ).emit(f"{self.name}.tile{rows}x{vectors}")
        return functions

    def _addresses(self, b: ir.IRBuilder, buffers: ir.LlvmValue, thread: ir.LlvmValue) -> GemmBuffers:
        plan, results = self.plan, len(self.layout.operands)
        a, source, c = (pointer_at(b, buffers, i) for i in (0, 1, results))
        shared = pointer_at(b, buffers, results + len(self.layout.results)) if plan.has_memory else None
        thread_memory = None if shared is None else offset(b, shared, plan.shared, (thread, plan.thread_nbytes))
        panels = shared if plan.panels == "shared" else thread_memory
        if plan.panels in ("ahead", "held"):
            panels = self._persistent_panels(b, buffers)
        return GemmBuffers(buffers, a, source, c, shared, thread_memory, panels)

    def _persistent_panels(self, b: ir.IRBuilder, buffers: ir.LlvmValue) -> ir.LlvmValue:
        """Return the address of panels that persist over many calls: after the workspace, if there is one."""
        first = len(self.layout.operands) + len(self.layout.results)
        return pointer_at(b, buffers, first + self.plan.has_memory)
