"""Products with the element-wise region that follows them, as native kernels: the region is a stage of the epilogue.

A result may lie in the bytes of what the region reads, because each element of that is read right before anything is
written where it is, and partial sums wait elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from attrs import frozen

from rlx_core.ir.graph import Node
from rlx_core.ir.strides import is_dense
from rlx_core.ir.types import TensorType
from rlx_core.ops.conversion import Cast
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.linalg import mat_mul
from rlx_core.pipeline.kernels import Condition
from rlx_cpu.native import ir
from rlx_cpu.native.build import prefetch
from rlx_cpu.native.contract import Emitted, Layout, Place
from rlx_cpu.native.epilogue import Epilogue, Operand, Spot, Stage, VectorFunction, vector_function
from rlx_cpu.native.gemm import emit_product
from rlx_cpu.native.isa import Isa
from rlx_cpu.native.problem import Product
from rlx_cpu.native.simd import Simd, index, offset, pointer_at, times
from rlx_cpu.native.stored import Stored
from rlx_cpu.native.table import native

__all__ = ["matmul_epilogue"]

OTHERS = tuple(range(2, 18))
"""The operands after the two factors."""

SECOND_CACHE = 1 << 21
"""Bytes of an operand from which on a tile finds little of it in the second cache; what is there need not be asked for."""


def region_code(
    op: FusedMatMulEpilogue, types: Sequence[TensorType], others: Sequence[Place | None] = ()
) -> VectorFunction | None:
    """The code of the region behind the product of the first two operands; `None` if a step of it has none.

    Of f16 and bf16 it is the region of f32, which is what registers hold: constants are not rounded either. Only where
    steps convert are dtypes meant as they are written.
    """
    read = (mat_mul.op().infer(*types[:2]), *types[2:])
    if not any(isinstance(step.op, Cast) for step in op.region.steps):
        read = tuple(t.with_dtype(t.dtype.accumulator) for t in read)
    numbers = {
        1 + i: p.number for i, p in enumerate(others) if p is not None and isinstance(p.number, bool | int | float)
    }
    if numbers:  # of one constant each; what is asked about every node of a long program is asked without them
        return vector_function(op.region, read, numbers)
    return plain_function(op.region, read)


plain_function = lru_cache(maxsize=256)(vector_function)


def reason_against(node: Node) -> str | None:
    """Why a node is no native product with an epilogue; `None` if it is one."""
    assert isinstance(node.op, FusedMatMulEpilogue), "registered for it alone"
    types = tuple(v.type for v in node.present())
    dtype = mat_mul.op().infer(*types[:2]).dtype
    if any(t.dtype is not dtype for t in node.types):
        return f"results of the product's dtype, {dtype}"
    held = [t.dtype for t in types[2:]]
    odd = sorted({d.name for d in held if d.kind != "bool" and d.accumulator is not dtype.accumulator})
    if odd:
        return f"operands that are {dtype.accumulator} or bool in registers, not {' '.join(odd)}"
    return None if region_code(node.op, types) is not None else "a region whose steps have vector code"


is_product = Condition(
    "a region whose steps have vector code", lambda node: reason_against(node) is None, reason_against
)


@native.register(
    FusedMatMulEpilogue,
    dtypes="f16 bf16 f32 f64 bool",
    when=is_product,
    in_place=OTHERS,
    is_each_in_place=True,
    writes_strides=True,
)
def matmul_epilogue(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over packed panels, the region on the sums."""
    op, (a, b, *others) = node.op, layout.operands
    assert isinstance(op, FusedMatMulEpilogue), "registered for it alone"
    assert a is not None and b is not None and all(others), "all operands are required"  # noqa: PT018
    function = region_code(op, [v.type for v in node.present()], others)
    assert function is not None, "the row refuses other regions"
    rows = Product.of(a, b, layout.results[0]).m
    shape = layout.results[0].type.static_shape

    def epilogue(simd: Simd, b: ir.IRBuilder, buffers: ir.Value) -> Epilogue:
        places = (*others, *layout.results)
        tensors = [Tensor.of(p, shape, rows, pointer_at(b, buffers, 2 + i)) for i, p in enumerate(places) if p]
        read, written = tensors[: len(others)], tensors[len(others) :]
        asks = [t.ask for t in read if t.is_far]
        return Epilogue().then(region(simd, function, read, written), is_long=function.is_long, asks=asks)

    return emit_product(module, layout, isa, name, epilogue, keeps_result=True)


def region(simd: Simd, function: VectorFunction, read: Sequence[Tensor], written: Sequence[Tensor]) -> Stage:
    """A stage that computes a region of the sums: its first result goes on, the others are stored."""

    def stage(b: ir.IRBuilder, value: ir.Value, spot: Spot) -> ir.Value:
        first, *more = function(b, value, *(t.load(b, simd, spot) for t in read))
        # Everything is read by now, so that a result may lie where an operand does.
        for tensor, result in zip(written[1:], more, strict=True):
            tensor.store(b, simd, result, spot)
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
        pointer: Where it starts.
    """

    place: Place
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    rows: int
    pointer: ir.Value

    @classmethod
    def of(cls, place: Place, shape: tuple[int, ...], rows: int, pointer: ir.Value) -> Tensor:
        own = tuple(s if d > 1 else 0 for d, s in zip(place.type.static_shape, place.strides, strict=True))
        return cls(place, shape, (0,) * (len(shape) - len(own)) + own, rows, pointer)

    @property
    def is_far(self) -> bool:
        """Whether each vector of the result reads elements of its own, and these are too many for the second cache."""
        is_whole = is_dense(self.place.type, self.place.strides) and self.place.type.static_shape == self.shape
        return is_whole and self.place.type.nbytes.__index__() > SECOND_CACHE

    def ask(self, b: ir.IRBuilder, spot: Spot) -> None:
        """Have the elements at a spot brought into the second cache; panels run through the first before the sums are done."""
        prefetch(b, offset(b, self._row(b, spot), times(b, spot.column, self.strides[-1])), nearness=2)

    def load(self, b: ir.IRBuilder, simd: Simd, spot: Spot) -> ir.Value:
        """The elements at a spot."""
        here = Spot(spot.batch, index(0), spot.column, spot.mask)
        return Operand(self._row(b, spot), by_column=self.strides[-1], dtype=self.place.type.dtype).load(b, simd, here)

    def store(self, b: ir.IRBuilder, simd: Simd, value: ir.Value, spot: Spot) -> None:
        """Write the elements at a spot of a result."""
        stored, by_column = Stored(simd, self.place.type.dtype), self.strides[-1]
        place = offset(b, self._row(b, spot), times(b, spot.column, by_column))
        if by_column == stored.itemsize:
            stored.store(b, value, place, spot.mask)
        else:
            count = None if spot.mask is None else b.sub(index(self.shape[-1]), spot.column)
            stored.store_spread(b, value, place, by_column, count)

    def _row(self, b: ir.IRBuilder, spot: Spot) -> ir.Value:
        # Batch axes may have become rows of the product; counted together, both are the result's rows in order.
        number = b.add(times(b, spot.batch, self.rows), spot.row)
        return offset(b, self.pointer, row_offset(b, number, self.shape[:-1], self.strides[:-1]))


def row_offset(b: ir.IRBuilder, number: ir.Value, shape: tuple[int, ...], strides: tuple[int, ...]) -> ir.Value:
    """Bytes to the row of this number: one product where all rows are equally far apart, a walk over the axes otherwise."""
    moving = [(d, s) for d, s in zip(shape, strides, strict=True) if d > 1]
    if all(outer == d * inner for (_, outer), (d, inner) in pairwise(moving)):
        return times(b, number, moving[-1][1] if moving else 0)
    total: ir.Value = index(0)
    for size, stride in reversed(moving):
        total = b.add(total, times(b, b.srem(number, index(size)), stride))
        number = b.sdiv(number, index(size))
    return total
