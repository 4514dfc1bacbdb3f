"""Grouped products as native kernels: each thread computes panels of the experts that rows have, and multiplies these rows.

A thread goes through its panels of columns, and for each through the rows. Neighbouring rows of one expert are a *run*: a block
of the expert's panel is computed once for a run, into a half of L1, and multiplied by all of its rows. Weights of experts
without rows are not read.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rlx_core.codegen.cuts import cut, unknown_cut
from rlx_core.codegen.indexing import Indexing, fault_of
from rlx_core.codegen.loads import OperandLoad, reason_against_load
from rlx_core.codegen.places import Fault, Layout
from rlx_core.codegen.product import MatrixProduct
from rlx_core.codegen.unknown import said, unknown
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ir.types import TensorType
from rlx_core.ops.fused_grouped_matmul import FusedGroupedMatMul
from rlx_core.pipeline.kernels import Condition
from rlx_core.system.records import evolve, frozen
from rlx_cpu.native.contract import MOST_PARTS, Call, Emitted, KernelForm
from rlx_cpu.native.indexing.indexed import with_index
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import KERNEL, POINTER, Variable, least, memory_type
from rlx_cpu.native.llvm.cuts import by_size, by_value, start_of
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share, times
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.llvm.sizes import sized as size_value
from rlx_cpu.native.llvm.words import Words
from rlx_cpu.native.products.gemm_plan import OperandSources, ProductPlan
from rlx_cpu.native.products.gemm_prologue import DTYPES
from rlx_cpu.native.products.gemm_sized import DEPTH, FEW_ROWS, GROUP, TILES
from rlx_cpu.native.products.gemm_tiles import UNROLL, Blocks, tile_for
from rlx_cpu.native.products.microkernel import Microkernel, MicrokernelArguments, ResultTile, Right
from rlx_cpu.native.products.panel_load import PanelLoad
from rlx_cpu.native.scalars.table import NATIVE
from rlx_cpu.native.table import native, op_of

ANY_ROWS: Final = unknown("rows")
"""The number of rows, in code for any number."""


@lru_cache(maxsize=256)
def reason_of(op: FusedGroupedMatMul, operands: tuple[TensorType, ...]) -> str | None:
    """Return why operands of these types have no native product; `None` if they have one."""
    x, *sources, _ = operands
    if x.dtype.name not in DTYPES:
        return f"a product of {' or '.join(DTYPES)}, not {x.dtype}"
    w = op.weights(*sources)
    if not w.is_static or not w.size:
        return "weights of known sizes, with elements"
    if x.shape[1] == 1:
        return "weights of more than one row"  # where a panel has one column, too, blocks would not be an axis of its loops
    return reason_against_load(NATIVE, op.load, tuple(sources))


def reason_at(node: Node) -> str | None:
    """Return why a node has no native product; `None` if it has one."""
    return reason_of(op_of(node, FusedGroupedMatMul), tuple(v.type for v in node.present()))


has_load = Condition(
    "a load whose steps have vector code",
    lambda node: reason_at(node) is None,
    reason_at,
    is_settled=lambda node: all(v.type.is_static for v in list(node.present())[1:-1]),
)


def sized(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> KernelForm:
    """Finds the form of a product of any number of rows."""

    def product(module: ir.Module, layout: Layout) -> Grouped:
        return Grouped.of(node, layout, module, isa)

    def key(grouped: Grouped) -> str:
        places = [None if p is None else (p.strides, p.is_bound, p.literal) for p in grouped.layout.operands[1:]]
        return f"{node.op!r} {grouped.product.a} {[v.type for v in list(node.present())[1:]]} {places}"

    expected = key(product(ir.Module("form"), layout))

    def call(layout: Layout, sizes: DimBinding) -> Call | None:
        known = product(ir.Module("form"), layout)
        if key(known) != expected:
            return None
        return Call(
            said(rows=known.rows),
            known.plan.thread_nbytes,
            fault=known.fault,
            uses_threads=known.uses_threads,
            parts=known.parts,
        )

    def emit(module: ir.Module, name: str) -> Emitted:
        emitted = evolve(product(module, layout), rows=ANY_ROWS).emit(name)
        return evolve(emitted, workspace=0, parts=0)  # passed in every call

    return KernelForm(expected, call, emit)


@native.register(FusedGroupedMatMul, when=has_load, sized=sized)
def grouped_matmul(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over panels of the experts that rows have."""
    return Grouped.of(node, layout, module, isa).emit(name)


@frozen(eq=False)
class Grouped:
    """One product while its functions are emitted.

    Attributes:
        plan: The product of the rows and the weights of all experts one above the other; the blocks are those of one of them.
        rows: The number of rows.
        k: Rows of the weight of an expert.
        indexing: The experts as indices.
        index_stride: Bytes between the experts of two rows.
    """

    layout: Layout
    plan: ProductPlan
    rows: int
    k: int
    indexing: Indexing
    index_stride: int

    @classmethod
    def of(cls, node: Node, layout: Layout, module: ir.Module, isa: Isa) -> Grouped:
        """Return the product of a node with known sizes."""
        op = op_of(node, FusedGroupedMatMul)
        count = op.load.inputs
        x, idx = layout.required(0, 1 + count)
        load = OperandLoad.of(op.load, layout.operands[1 : 1 + count])
        product = MatrixProduct.of_load(x, load, layout.results[0])
        words = Words.of_product(module, isa, product.factors, product.dtype)
        tile = tile_for(FEW_ROWS, product.n, words.simd.lanes, isa.registers)
        panels = cut(-(-product.n // words.simd.lanes), tile.vectors)
        max_depth = min(product.k, isa.machine.products.load_nbytes // (panels.size * words.nbytes))
        depth = max((d for d in load.depths if d <= max_depth and d % UNROLL == 0), default=product.k)
        blocks = Blocks(unknown_cut("tiles", tile.rows), panels, DEPTH, TILES, GROUP, words.simd.lanes)
        plan = ProductPlan(
            evolve(product, k=load.shape[0]),
            words,
            isa,
            is_held=False,
            keeps_result=False,
            symbolic_blocks=evolve(blocks, depth=depth),
            sources=OperandSources("loaded", "direct", owns_rows=False),
        )
        weights = TensorType(load.dtype, (load.shape[0] // product.k, product.k, product.n))
        indexing = Indexing.of(weights, idx.type, 0, 0, "error")
        return cls(layout, plan, product.m, product.k, indexing, idx.strides[0])

    @property
    def product(self) -> MatrixProduct:
        return self.plan.product

    @property
    def depth(self) -> int:
        """Rows of a block of a panel."""
        return self.plan.blocks.depth

    @property
    def fault(self) -> Fault | None:
        """The error for an expert that is not one."""
        return fault_of(self.indexing, "grouped_matmul")

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds, of known sizes."""
        return self.rows * self.k * self.product.n

    @property
    def uses_threads(self) -> bool:
        return self.multiply_adds >= self.plan.isa.machine.serial_products

    @property
    def parts(self) -> int:
        limit = self.multiply_adds // self.plan.sizes.part_products
        return max(1, min(MOST_PARTS, self.plan.blocks.panels.pieces, limit))

    @property
    def max_height(self) -> int:
        """Rows of the highest tile."""
        return self.plan.most_rows

    def emit(self, name: str) -> Emitted:
        """Add the function of the product to the module."""
        plan, count = self.plan, len(self.layout.operands)
        module = plan.words.simd.module
        load = PanelLoad.of(plan, module, name, count + 1)
        kernels = self._microkernels(name)
        b = ir.new_function(module, KERNEL, name)
        buffers, part, parts, thread = b.function.args
        x, idx, y, memory = (pointer_at(b, buffers, i) for i in (0, count - 1, count, count + 1))
        status = pointer_at(b, buffers, count + 2 + len(load.packs))
        scratch = offset(b, memory, (thread, plan.thread_nbytes))
        table = load.table(b, buffers)
        with counting(b, *share(b, plan.blocks.panels.pieces, part, parts)) as panel:
            column = times(b, start_of(b, plan.blocks.panels, panel), plan.words.simd.lanes)
            end = Variable.of(b, index(0))
            with counting(b, 0, size_value(b, self.rows)) as row, b.if_then(b.icmp_signed(">=", row, end.value(b))):
                self._find_end(b, idx, row, end)

                def multiply(
                    expert: ir.LlvmValue,
                    panel: ir.LlvmValue = panel,
                    column: ir.LlvmValue = column,
                    row: ir.LlvmValue = row,
                    end: Variable = end,
                ) -> None:
                    with counting(b, 0, self.k, self.depth) as k0:
                        load.emit(b, panel, b.add(times(b, expert, self.k), k0), table, scratch)
                        self._multiply(b, kernels, (x, scratch, y, buffers), (row, end.value(b)), panel, column, k0)

                with_index(b, self.indexing, offset(b, idx, (row, self.index_stride)), index(0), status, multiply)
        b.ret_void()
        return Emitted(
            name,
            packs=load.packs,
            workspace=plan.thread_nbytes,
            fault=self.fault,
            uses_threads=not is_known(self.rows) or self.uses_threads,
            parts=self.parts if is_known(self.rows) else 0,
            notes={"tile": f"{self.max_height}x{plan.blocks.panels.size * plan.blocks.lanes}", "depth": self.depth,
                   "load": str(self.product.load)},
        )  # fmt: skip

    def _find_end(self, b: ir.IRBuilder, idx: ir.LlvmValue, row: ir.LlvmValue, end: Variable) -> None:
        """Set the end of the run that begins with a row: the first row behind it of another expert."""
        kind, itemsize = memory_type(self.indexing.dtype), self.indexing.dtype.itemsize

        def expert_of(row: ir.LlvmValue) -> ir.LlvmValue:
            return b.load(offset(b, idx, (row, self.index_stride)), typ=kind, align=itemsize)

        first = expert_of(row)
        end.set(b, b.add(row, index(1)))
        head, compare, longer, done = (
            b.append_basic_block(f"run.{part}") for part in ("head", "next", "longer", "end")
        )
        b.branch(head)
        b.position_at_end(head)
        following = end.value(b)
        b.cbranch(b.icmp_signed("<", following, size_value(b, self.rows)), compare, done)
        b.position_at_end(compare)
        b.cbranch(b.icmp_signed("==", expert_of(following), first), longer, done)
        b.position_at_end(longer)
        end.set(b, b.add(following, index(1)))
        b.branch(head)
        b.position_at_end(done)

    def _multiply(
        self,
        b: ir.IRBuilder,
        kernels: dict[tuple[int, int], ir.Function],
        pointers: tuple[ir.LlvmValue, ir.LlvmValue, ir.LlvmValue, ir.LlvmValue],
        run: tuple[ir.LlvmValue, ir.LlvmValue],
        panel: ir.LlvmValue,
        column: ir.LlvmValue,
        k0: ir.LlvmValue,
    ) -> None:
        """The tiles of a run with a block of a panel."""
        (x, scratch, y, buffers), p = pointers, self.product
        nowhere = ir.LlvmConstant(POINTER, None)
        is_first, is_last = (b.icmp_signed("==", k0, index(k)) for k in (0, self.k - self.depth))
        with counting(b, *run, self.max_height) as row:
            a = offset(b, x, (row, p.a.by_row), (k0, p.a.by_column))
            c = offset(b, y, (row, p.c.by_row), (column, p.c.by_column))
            arguments = MicrokernelArguments(
                a, scratch, c, nowhere, nowhere, index(self.depth), is_first, is_last,
                index(0), row, column, buffers, index(0),
            )  # fmt: skip
            for height in by_value(b, least(b, b.sub(run[1], row), index(self.max_height)), 1, self.max_height):
                for vectors in by_size(b, self.plan.blocks.panels, panel):
                    b.call(kernels[height, vectors], arguments.present)

    def _microkernels(self, name: str) -> dict[tuple[int, int], ir.Function]:
        """The inner loop for every height and width that occurs."""
        plan, p, words = self.plan, self.product, self.plan.words
        columns = p.n if p.n % words.simd.lanes else None
        functions = {}
        for rows in range(1, self.max_height + 1):
            for vectors in plan.blocks.panels.sizes:
                unroll = plan.unroll(rows, vectors)
                functions[rows, vectors] = Microkernel(
                    words=words,
                    rows=rows,
                    vectors=vectors,
                    a_strides=(p.a.by_row, p.a.by_column),
                    right=Right(vectors * words.nbytes, words.nbytes, is_packed=True),
                    result=ResultTile(plan.result, (p.c.by_row, p.c.by_column), columns=columns),
                    accumulates=self.depth < self.k,
                    is_even=self.depth % unroll == 0,
                    unroll=unroll,
                ).emit(f"{name}.tile{rows}x{vectors}")
        return functions
