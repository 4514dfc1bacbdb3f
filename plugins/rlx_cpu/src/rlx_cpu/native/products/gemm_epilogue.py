"""Products with the element-wise region that follows them, as native kernels: the region is a stage of the epilogue.

A result may share memory with operands of the region, because each element of these is read directly before the result's
element is written there, and partial sums are stored elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from rlx_core.codegen.epilogue import Pointwise, reason_against, region_function
from rlx_core.codegen.places import Layout, Place
from rlx_core.codegen.product import is_uneven, sizes_of
from rlx_core.ir.dtypes import DType, bf16, bool_, f16, f32, i8, i16, i32, u8, u16
from rlx_core.ir.graph import Node
from rlx_core.ir.strides import is_dense
from rlx_core.ir.types import TensorType
from rlx_core.ops.convolution.folded import FoldedMatMul
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.region import ElementwiseRegion
from rlx_core.pipeline.kernels import Condition
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import prefetch
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import Simd, index, offset, pointer_at, times
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.llvm.stored import Stored
from rlx_cpu.native.llvm.words import PAIRED_INTEGERS
from rlx_cpu.native.products.epilogue import EpilogueOperand, GemmEpilogue, Stage, TileElements
from rlx_cpu.native.products.folded_sized import product_of_windows, sized_folded
from rlx_cpu.native.products.gemm import emit_product
from rlx_cpu.native.products.gemm_driver import MakeEpilogue
from rlx_cpu.native.products.gemm_sized import Lying, product_of, sized_product
from rlx_cpu.native.products.microkernel import nothing_follows
from rlx_cpu.native.scalars.table import NATIVE
from rlx_cpu.native.table import native, op_of

OTHERS = tuple(range(2, 18))
"""The operands after the two factors."""


@lru_cache(maxsize=256)
def reason_of(op: FusedMatMulEpilogue | FoldedMatMul, operands: tuple[TensorType, ...]) -> str | None:
    """Kept, because it is asked about every node of a long program."""
    if isinstance(op, FusedMatMulEpilogue) and op.acc_dtype is not None:
        return f"sums of the factors' dtype, not {op.acc_dtype}"
    return None if op.region is None else reason_against(NATIVE, op.region, operands)


def reason_at(node: Node) -> str | None:
    """Return why a node is no native product with an epilogue; `None` if it is one."""
    assert isinstance(node.op, FusedMatMulEpilogue | FoldedMatMul), "registered for them alone"
    return reason_of(node.op, tuple(v.type for v in node.present()))


is_product = Condition(
    "a region whose steps have vector code",
    lambda node: reason_at(node) is None,
    reason_at,
    is_settled=lambda node: True,  # a region of single elements has the same steps for all sizes
)


def tensors_of(layout: Layout, factors: int = 2) -> tuple[Lying, ...] | None:
    """Return the layouts of the region's operands and results; `None` if rows of an entry have no uniform stride.

    Args:
        factors: Operands of the product, in front of those of the region.
    """
    shape, layouts = layout.results[0].type.static_shape, []
    for place in (*layout.required()[factors:], *layout.results):
        strides = Tensor.aligned(place, shape)
        moving = moving_axes(shape[:-1], strides[:-1])
        is_even = not is_uneven(moving)
        if not is_even and len(moving) > 2:
            return None
        by_entry = None if is_even else moving[0][1]
        layouts.append(Lying(place.type.dtype, moving[-1][1] if moving else None, strides[-1], by_entry))
    return tuple(layouts)


def region_after(node: Node, layout: Layout, *, prefetched_nbytes: int | None = None) -> MakeEpilogue:
    """The region of a product on its sums; arguments as for `epilogue_of`."""
    return epilogue_of(
        op_of(node, FusedMatMulEpilogue).region, node, layout, product_of(layout).m, prefetched_nbytes=prefetched_nbytes
    )


@native.register(
    FusedMatMulEpilogue,
    dtypes="f16 bf16 f32 f64 bool",
    when=is_product,
    in_place=OTHERS,
    is_each_in_place=True,
    writes_strides=True,
    sized=sized_product(region_after, tensors_of, keeps_result=True),
)
def matmul_epilogue(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over packed panels, the region on the sums."""
    epilogue = region_after(node, layout, prefetched_nbytes=isa.machine.l2_nbytes)
    return emit_product(module, layout, isa, name, epilogue, keeps_result=True)


SCALED: Final = (f32, f16, bf16, bool_, i32, i16, i8, u8)
"""Dtypes of the operands of a region of integer sums."""

SCALED_RESULTS: Final = (f32, f16, bf16, i32, i16, u16, i8, u8)
"""Dtypes of its results."""

FLOATS_READ: Final = (f32, f16, bf16, bool_)
"""Dtypes of the operands of a region of f32 sums of narrower floats; its results are the floats of these."""


@lru_cache(maxsize=256)
def reason_of_integers(op: FusedMatMulEpilogue, operands: tuple[TensorType, ...]) -> str | None:
    """Return why a product of integers with its region is not one kernel, as "needs …" would continue; `None` if it is."""
    x = operands[0]
    if op.acc_dtype is not i32 or x.dtype not in PAIRED_INTEGERS:
        return f"factors of i8, u8 or i16 with sums in i32, not {x.dtype} with sums in {op.acc_dtype}"
    return reason_of_sums(op.region, x.with_dtype(i32), operands[2:])


@lru_cache(maxsize=256)
def reason_of_narrow_floats(op: FusedMatMulEpilogue, operands: tuple[TensorType, ...]) -> str | None:
    """Return the same for a product of f16 or bf16 whose sums are not rounded."""
    x = operands[0]
    if op.acc_dtype is not f32 or not x.dtype.is_narrow:
        return f"factors of f16 or bf16 with sums in f32, not {x.dtype} with sums in {op.acc_dtype}"
    return reason_of_sums(op.region, x.with_dtype(f32), operands[2:], FLOATS_READ, FLOATS_READ[:3])


def reason_of_sums(
    region: ElementwiseRegion,
    sums: TensorType,
    others: Sequence[TensorType],
    read: Sequence[DType] = SCALED,
    written: Sequence[DType] = SCALED_RESULTS,
) -> str | None:
    """Return why a region of unrounded sums is not a stage of their kernel; `None` if it is.

    Args:
        read, written: Dtypes of the other operands, and of the results; by default those for sums of integers.
    """
    results = region.types(sums.with_shape(region.shape), *others)[1 + len(others) :]
    if any(results[r].dtype not in written for r in region.results):
        return f"results that are one of {' '.join(map(str, written))}"
    odd = sorted({t.dtype.name for t in others if t.dtype not in read})
    if odd:
        return f"operands that are one of {' '.join(map(str, read))}, not {' '.join(odd)}"
    return None if region_function(NATIVE, region, [sums, sums, *others]) is not None else "steps with vector code"


def reason_at_integers(node: Node) -> str | None:
    """Return why a node is no native product of integers with an epilogue; `None` if it is one."""
    return reason_of_integers(op_of(node, FusedMatMulEpilogue), tuple(v.type for v in node.present()))


def reason_at_narrow_floats(node: Node) -> str | None:
    """Return why a node is no native product of narrow floats with f32 sums and an epilogue; `None` if it is one."""
    return reason_of_narrow_floats(op_of(node, FusedMatMulEpilogue), tuple(v.type for v in node.present()))


is_integer_product = Condition(
    "integers in pairs, and a region whose steps have vector code",
    lambda node: reason_at_integers(node) is None,
    reason_at_integers,
    is_settled=lambda node: True,  # a region of single elements has the same steps for all sizes
)

is_narrow_product = Condition(
    "f16 or bf16 with sums in f32, and a region whose steps have vector code",
    lambda node: reason_at_narrow_floats(node) is None,
    reason_at_narrow_floats,
    is_settled=lambda node: True,
)


@native.register(
    FusedMatMulEpilogue,
    dtypes=(*SCALED, u16),
    when=is_integer_product,
    in_place=OTHERS,
    is_each_in_place=True,
    writes_strides=True,
    sized=sized_product(region_after, tensors_of, keeps_result=True),
)
def integer_matmul_epilogue(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over packed panels of pairs, the region on the sums."""
    epilogue = region_after(node, layout, prefetched_nbytes=isa.machine.l2_nbytes)
    return emit_product(module, layout, isa, name, epilogue, keeps_result=True)


@native.register(
    FusedMatMulEpilogue,
    dtypes=FLOATS_READ,
    when=is_narrow_product,
    in_place=OTHERS,
    is_each_in_place=True,
    writes_strides=True,
    sized=sized_product(region_after, tensors_of, keeps_result=True),
)
def narrow_matmul_epilogue(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over packed panels of f16 or bf16, the region on the sums in f32."""
    return matmul_epilogue(module, node, layout, isa, name)


def region_of_windows(node: Node, layout: Layout, *, prefetched_nbytes: int | None = None) -> MakeEpilogue:
    """The region of a product of windows on its sums; arguments as for `epilogue_of`."""
    op, product = op_of(node, FoldedMatMul), product_of_windows(node, layout)
    if op.region is None:
        return nothing_follows
    line = product.width if product.lines else 0
    return epilogue_of(op.region, node, layout, 0, line, prefetched_nbytes=prefetched_nbytes)


@native.register(
    FoldedMatMul,
    dtypes="f32 f64 bool",
    when=is_product,
    in_place=OTHERS,
    is_each_in_place=True,
    writes_strides=True,
    sized=sized_folded(region_of_windows),
)
def folded_matmul(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over packed panels and over rows that are read where they lie, the region on the sums."""
    return emit_windows(module, node, layout, isa, name)


def emit_windows(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """The product of windows by a matrix, and the region on the sums."""
    epilogue = region_of_windows(node, layout, prefetched_nbytes=isa.machine.l2_nbytes)
    keeps_result = op_of(node, FoldedMatMul).region is not None
    return emit_product(
        module, layout, isa, name, epilogue, product_of_windows(node, layout), keeps_result=keeps_result
    )


@lru_cache(maxsize=256)
def reason_of_integer_windows(op: FoldedMatMul, operands: tuple[TensorType, ...]) -> str | None:
    """Return why a product of windows of integers is not one kernel, as "needs …" would continue; `None` if it is."""
    x, _, *others = operands
    if op.acc_dtype is not i32 or x.dtype is not i16:
        return f"factors of i16 with sums in i32, not {x.dtype} with sums in {op.acc_dtype}"
    if not isinstance(x.shape[-1], int) or x.shape[-1] % 2:
        return f"an even number of channels, not {x.shape[-1]}"
    return None if op.region is None else reason_of_sums(op.region, x.with_dtype(i32), others)


def reason_at_integer_windows(node: Node) -> str | None:
    """Return why a node is no native product of windows of integers; `None` if it is one."""
    return reason_of_integer_windows(op_of(node, FoldedMatMul), tuple(v.type for v in node.present()))


is_product_of_integer_windows = Condition(
    "windows of i16 in pairs, and a region whose steps have vector code",
    lambda node: reason_at_integer_windows(node) is None,
    reason_at_integer_windows,
    is_settled=lambda node: (
        True
    ),  # channels are known, and a region of single elements has the same steps for all sizes
)


@native.register(
    FoldedMatMul,
    dtypes=(*SCALED, u16),
    when=is_product_of_integer_windows,
    in_place=OTHERS,
    is_each_in_place=True,
    writes_strides=True,
    sized=sized_folded(region_of_windows),
)
def integer_folded_matmul(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over packed panels of pairs and over rows that are read where they lie, the region on the sums."""
    return emit_windows(module, node, layout, isa, name)


def epilogue_of(
    op: ElementwiseRegion,
    node: Node,
    layout: Layout,
    rows: int,
    line: int = 0,
    *,
    factors: int = 2,
    prefetched_nbytes: int | None = None,
) -> MakeEpilogue:
    """Return the function that creates the stage of a region.

    Args:
        rows: Rows of a batch entry of the product.
        line: Rows of one of its lines, at whose end tiles end; 0 without lines.
        factors: Operands of the product, in front of those of the region.
        prefetched_nbytes: Bytes of an operand from which it is prefetched; `None` for no prefetching.
    """
    others = layout.required()[factors:]
    x, *following = (v.type for v in node.present())
    if isinstance(node.op, FusedMatMulEpilogue | FoldedMatMul):
        x = x.with_dtype(node.op.acc_dtype or x.dtype)
    function = region_function(NATIVE, op, [x, x, *following[factors - 1 :]], others)
    assert function is not None, "the row refuses other regions"
    shape = sizes_of(layout.results[0])

    def epilogue(simd: Simd, b: ir.IRBuilder, buffers: ir.LlvmValue) -> GemmEpilogue:
        places = (*others, *layout.results)
        tensors = [Tensor.of(p, shape, rows, line, pointer_at(b, buffers, factors + i)) for i, p in enumerate(places)]
        read, written = tensors[: len(others)], tensors[len(others) :]
        prefetched = [] if prefetched_nbytes is None else [t for t in read if t.is_far(prefetched_nbytes)]
        prefetches = [t.prefetch for t in prefetched]
        return GemmEpilogue().then(
            region(simd, function, read, written), is_long=function.is_long, prefetches=prefetches
        )

    return epilogue


def region(simd: Simd, function: Pointwise, read: Sequence[Tensor], written: Sequence[Tensor]) -> Stage:
    """A stage that computes a region of the sums: its first result goes on, the others are stored."""
    repeated: dict[tuple[int, str], ir.LlvmValue] = {}

    def loaded(b: ir.IRBuilder, number: int, tensor: Tensor, position: TileElements) -> ir.LlvmValue:
        """Return the elements at a position; row-invariant ones are loaded once."""
        if not tensor.is_repeated:
            return tensor.load(b, simd, position)
        key = number, position.column.text if tensor.strides[-1] else ""
        if key not in repeated:
            repeated[key] = tensor.load(b, simd, position)
        return repeated[key]

    def stage(b: ir.IRBuilder, value: ir.LlvmValue, position: TileElements) -> ir.LlvmValue:
        first, *more = function.apply(b, NATIVE, value, *(loaded(b, i, t, position) for i, t in enumerate(read)))
        # Everything is read by now, so that a result may lie where an operand does.
        for tensor, result in zip(written[1:], more, strict=True):
            tensor.store(b, simd, result, position)
        return first

    return stage


@frozen(eq=False)
class Tensor:
    """A tensor of the result's dims, or one that broadcasts to them, however its rows lie in memory.

    Attributes:
        place: Its type.
        shape: The result's dims.
        strides: Bytes for each of them, 0 where the tensor is repeated.
        rows: Rows of one of the product's batch entries.
        line: Rows of one of its lines, with which tiles end; 0 where rows are not in lines.
        pointer: Its start address.
    """

    place: Place
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    rows: int
    line: int
    pointer: ir.LlvmValue

    @classmethod
    def of(cls, place: Place, shape: tuple[int, ...], rows: int, line: int, pointer: ir.LlvmValue) -> Tensor:
        return cls(place, shape, cls.aligned(place, shape), rows, line, pointer)

    @staticmethod
    def aligned(place: Place, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Bytes for each of the result's dims."""
        strides = tuple(0 if d in (0, 1) else s for d, s in zip(sizes_of(place), place.strides, strict=True))
        return (0,) * (len(shape) - len(strides)) + strides

    def is_far(self, held_nbytes: int) -> bool:
        """Whether a tile finds little of it in a cache of so many bytes: no vector of the result reads what another has read."""
        is_whole = is_dense(self.place.type, self.place.strides) and self.place.type.shape == self.shape
        return is_whole and (self.place.is_fresh or self.place.type.nbytes.__index__() > held_nbytes)

    @property
    def is_repeated(self) -> bool:
        """Whether all rows are the same."""
        return all(is_known(stride) and stride == 0 for stride in self.strides[:-1])

    def prefetch(self, b: ir.IRBuilder, position: TileElements) -> None:
        """Prefetch the elements at a position into L2; panels pass through L1 before the sums are complete."""
        prefetch(b, offset(b, self._row(b, position), times(b, position.column, self.strides[-1])), locality=2)

    def load(self, b: ir.IRBuilder, simd: Simd, position: TileElements) -> ir.LlvmValue:
        """Return the elements at a position."""
        row = EpilogueOperand(self._row(b, position), self.strides[-1], self.place.type.dtype)
        return row.load(b, simd, position)

    def store(self, b: ir.IRBuilder, simd: Simd, value: ir.LlvmValue, position: TileElements) -> None:
        """Write the elements at a position of a result."""
        stored, by_column = Stored.next_to(simd, self.place.type.dtype), self.strides[-1]
        place = offset(b, self._row(b, position), times(b, position.column, by_column))
        if by_column == stored.itemsize:
            stored.store(b, value, place, position.mask)
        else:
            count = None if position.mask is None else b.sub(index(self.shape[-1]), position.column)
            stored.store_spread(b, value, place, by_column, count)

    def _row(self, b: ir.IRBuilder, position: TileElements) -> ir.LlvmValue:
        if self.is_repeated:
            return self.pointer
        # Batch axes may have become rows of the product; counted together, both are the result's rows in order.
        before, moving = times(b, position.batch, self.rows), moving_axes(self.shape[:-1], self.strides[:-1])
        if self.line and is_uneven(moving) and moving[-1][0] % self.line == 0:
            start = row_offset(b, b.add(before, position.tile), moving)
            return offset(b, self.pointer, start, (position.ahead, moving[-1][1]))
        return offset(b, self.pointer, row_offset(b, b.add(before, position.row), moving))


def moving_axes(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """The axes along which there is a step to make."""
    return [(d, s) for d, s in zip(shape, strides, strict=True) if d not in (0, 1)]


def row_offset(b: ir.IRBuilder, number: ir.LlvmValue, moving: Sequence[tuple[int, int]]) -> ir.LlvmValue:
    """Return the byte offset of the row with this number: one product for uniform strides, else a walk over the axes."""
    if not is_uneven(moving):
        return times(b, number, moving[-1][1] if moving else 0)
    total: ir.LlvmValue = index(0)
    for size, stride in reversed(moving[1:]):
        total = b.add(total, times(b, b.srem(number, index(size)), stride))
        number = b.sdiv(number, index(size))
    return b.add(total, times(b, number, moving[0][1]))
