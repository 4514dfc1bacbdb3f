"""Attention, and its gradient, as native kernels, for known sizes or with batch, queries and keys as run-time arguments.

`forward_tiles.py` and `backward_tiles.py` have the per-thread code. For dynamic sizes tiles have every height up to a maximum,
as for products, and keys are in blocks whose width does not depend on how many there are. Forward, sums are rescaled as often as
in code for the size, or more often: results agree with it to a few roundings. Backward, the row stride of the weights is a
run-time argument, and sums are in the same order as in code for the known size if both have tiles of the same kind, which is so
from two vectors of keys on.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from attrs import evolve

from rlx_core.codegen.attention import POSITION_AXES, AttentionProblem
from rlx_core.codegen.attention_scores import PlacedAttention
from rlx_core.codegen.places import Layout, Place
from rlx_core.codegen.sizes import layout_sizes, sized_layout
from rlx_core.codegen.unknown import said
from rlx_core.ir.dims import Dim, DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ops.attention import Attention, AttentionBackward
from rlx_core.ops.attention_scores import AttentionOp
from rlx_core.ops.quantized_attention import QuantizedAttention
from rlx_core.system.records import frozen
from rlx_cpu.native.attention.backward_plan import BackwardCut, BackwardPlan
from rlx_cpu.native.attention.backward_tiles import Backward
from rlx_cpu.native.attention.cut import AttentionCut, products_of
from rlx_cpu.native.attention.forward_plan import ForwardPlan
from rlx_cpu.native.attention.forward_tiles import Forward
from rlx_cpu.native.attention.parts import fitting_codes, fitting_dtypes
from rlx_cpu.native.attention.plan import DY, K, Q, V
from rlx_cpu.native.contract import MOST_PARTS, Call, Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import Simd
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.llvm.stored import Stored
from rlx_cpu.native.llvm.words import Words
from rlx_cpu.native.table import native, op_of

LARGEST: Final = 1 << 30
"""Positions that are counted with half the bits of an address."""


@frozen(eq=False)
class AttentionForm:
    """Attention, or its gradient, for all sizes.

    Attributes:
        layout: Layout of operands and results, for all sizes.
        cut: The partition with unknown numbers.
        partition: The same of the backward pass; `None` for the forward pass.
    """

    op: AttentionOp
    layout: Layout
    cut: AttentionCut
    isa: Isa
    partition: BackwardCut | None

    @cached_property
    def nbytes(self) -> tuple[Dim, Dim]:
        """Bytes of a thread's memory, and of memory shared by threads; read only if rows are known."""
        plan = self._plan(ir.Module("form"))
        return (plan.own, plan.shared) if isinstance(plan, BackwardPlan) else (plan.workspace, 0)

    @property
    def key(self) -> str:
        return f"{self.op!r} {self.layout!r} {self.cut!r} {self.partition!r}"

    def call(self, layout: Layout, sizes: DimBinding) -> Call | None:
        """See `SizedForm.call`."""
        strides, known = layout_sizes(self.layout, layout), AttentionProblem.of(self.op, layout)
        if strides is None or not known.keys or max(known.queries, known.keys) > LARGEST:
            return None
        if few_queries(self.op, layout, self.isa) != few_queries(self.op, self.layout, self.isa):
            return None
        cut, numbers = self.cut.numbers(known, self.isa)
        products, parts = products_of(known), cut.parts
        if self.partition is not None:
            partition = BackwardCut.of(known, cut)
            if (partition.segments == 1) != (self.partition.segments == 1):
                return None
            numbers |= partition.numbers
            products, parts = 2 * products, max(1, min(MOST_PARTS, known.batch * known.kv_heads * partition.segments))
        call_sizes = DimBinding({**sizes.sizes, **strides, **said(**numbers).sizes})
        workspace, shared = (call_sizes.bind(each).__index__() for each in self.nbytes)
        uses_threads = products >= self.isa.machine.serial_products
        return Call(call_sizes, workspace, shared, uses_threads=uses_threads, parts=parts)

    def emit(self, module: ir.Module, name: str) -> Emitted:
        """See `SizedForm.emit`."""
        plan = self._plan(module)
        emitted = (Backward(plan, name) if isinstance(plan, BackwardPlan) else Forward(plan, name)).emit()
        return evolve(emitted, workspace=0, shared_workspace=0)  # passed in every call

    def _plan(self, module: ir.Module) -> ForwardPlan | BackwardPlan:
        words = Words(Stored(Simd(module, self.isa, self.cut.problem.dtype), self.layout.results[0].type.dtype))
        placed = PlacedAttention(self.cut.problem, self.layout)
        if self.partition is None:
            return ForwardPlan(placed, self.cut, words)
        return BackwardPlan(placed, self.cut, words, self.partition)

    @property
    def has_known_rows(self) -> bool:
        """Whether the strides of the positions and of the features of a head are known."""
        plan = self._plan(ir.Module("form"))
        read, written = ((Q, K, V), (Q,)) if self.partition is None else ((Q, K, V, DY), (Q, K, V))
        heads = (*map(plan.operand, read), *map(plan.result, written))
        return all(is_known(s) for head in heads for s in (head.position, head.feature))


def few_queries(op: AttentionOp, layout: Layout, isa: Isa) -> int | None:
    """Return the number of queries if a form is for this number alone: few queries that read the valid keys where they lie."""
    placed = PlacedAttention.of(op, layout)
    queries = placed.problem.queries
    is_few = placed.lengths is not None and is_known(queries) and 0 < queries <= isa.machine.attention.few_queries
    return queries if is_few else None


def with_queries(op: AttentionOp, layout: Layout, queries: int) -> Layout:
    """Return a layout for all sizes in which the number of queries is known."""

    def known(place: Place | None) -> Place:
        assert place is not None, "queries are required"
        shape = list(place.type.shape)
        shape[POSITION_AXES[op.layout]] = queries
        return evolve(place, type=place.type.with_shape(tuple(shape)))

    return Layout((known(layout.operands[Q]), *layout.operands[K:]), (known(layout.results[Q]),))


def sized_attention(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> AttentionForm | None:
    """Finds the form of attention, or of its gradient."""
    op, lying, partition = op_of(node, AttentionOp), sized_layout(node, layout), None
    few = few_queries(op, layout, isa)
    if few is not None:
        lying = with_queries(op, lying, few)
    problem, known = AttentionProblem.of(op, lying), AttentionProblem.of(op, layout)
    is_backward = isinstance(op, AttentionBackward)
    if not problem.width or (is_backward and not problem.features):
        return None
    cut = AttentionCut.for_all(problem, isa)
    if is_backward:
        has_segments = BackwardCut.of(known, cut.numbers(known, isa)[0]).segments != 1
        partition = BackwardCut.for_all(cut, has_segments=has_segments)
    form = AttentionForm(op, lying, cut, isa, partition)
    return form if form.has_known_rows else None


def attention(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Blocks of keys with an online softmax."""
    return Forward(ForwardPlan.of(module, op_of(node, Attention), layout, isa), name).emit()


def quantized_attention(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """The same over codes, which are widened when they are read or packed, and whose scales multiply scores and weights."""
    return Forward(ForwardPlan.of(module, op_of(node, QuantizedAttention), layout, isa), name).emit()


def attention_backward(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Weights recomputed by blocks of queries; key heads, or segments of their queries, shared out."""
    return Backward(BackwardPlan.of(module, op_of(node, AttentionBackward), layout, isa), name).emit()


native.register(
    QuantizedAttention, dtypes="f32 i8 i64 bool", when=fitting_codes, writes_strides=True, sized=sized_attention
)(quantized_attention)
for op, emit in ((Attention, attention), (AttentionBackward, attention_backward)):
    native.register(
        op, dtypes="f16 bf16 f32 f64 i64 bool", when=fitting_dtypes, writes_strides=True, sized=sized_attention
    )(emit)
