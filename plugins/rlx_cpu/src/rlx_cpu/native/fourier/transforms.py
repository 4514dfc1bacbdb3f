"""Transforms along the last axis as one kernel: threads take rows, and each goes through its stages in the thread's memory."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from rlx_core.codegen.places import Layout
from rlx_core.ir.dtypes import DType, f32
from rlx_core.ir.graph import Node
from rlx_core.ir.types import TensorType, normalize_axis
from rlx_core.ops.fourier.fourier import Fft
from rlx_core.pipeline.kernels import condition
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import MOST_PARTS, Emitted, aligned
from rlx_cpu.native.fourier.stages import Interleaved, Planes, Stages
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import KERNEL, register_type
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, offset, pointer_at, share
from rlx_cpu.native.table import native, op_of

SMALLEST: Final = 8
"""Elements whose quarter is a vector of two."""

LARGEST: Final = 1 << 16
"""Elements up to which the roots, which are part of the code, and two copies of a row stay in the second cache."""


@condition(f"one axis, the last, and a power of two from {SMALLEST} to {LARGEST} of elements on it")
def is_power_of_two(node: Node) -> bool:
    (x,), op = node.present(), op_of(node, Fft)
    if len(op.axes) != 1 or normalize_axis(op.axes[0], x.ndim) != x.ndim - 1:
        return False
    n = x.shape[-1]
    return isinstance(n, int) and SMALLEST <= n <= LARGEST and n & (n - 1) == 0


@frozen
class TransformRows:
    """Rows that are transformed each for itself.

    Attributes:
        count: Number of rows.
        n: Elements of a row.
        dtype: Dtype of real and imaginary parts.
    """

    count: int
    n: int
    dtype: DType

    @classmethod
    def of(cls, x: TensorType) -> TransformRows:
        *outer, n = x.static_shape
        return cls(prod(outer), n, x.dtype.component)

    @property
    def nbytes(self) -> int:
        return 2 * self.n * self.dtype.itemsize

    @property
    def products(self) -> int:
        """Fused products that take about as long as all rows."""
        return self.count * self.n * self.n.bit_length() * 2


@native.register(Fft, dtypes="c64 c128", when=is_power_of_two, in_place=(0,), accepts_strides=False, name="transform")
def emit_transform(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Radix-4 stages, and one radix-2 stage if the length is no power of four, with two per-thread buffers."""
    op, rows = op_of(node, Fft), TransformRows.of(layout.results[0].type)
    element = register_type(rows.dtype)
    lanes = min(isa.lanes(rows.dtype), rows.n // 4)
    kind = np.float32 if rows.dtype is f32 else np.float64
    stages = Stages(module, name, element, kind, lanes, rows.n, op.inverse)
    scale = op.factor((rows.n,), op.inverse, rows.dtype)
    b = ir.new_function(module, KERNEL, name)
    buffers, part, parts, thread = b.function.args
    source, to, scratch = (pointer_at(b, buffers, position) for position in range(3))
    plane, buffer_nbytes = rows.nbytes // 2, aligned(rows.nbytes)
    thread_memory = offset(b, scratch, (thread, 2 * buffer_nbytes))
    temporaries = [Planes(offset(b, thread_memory, number * buffer_nbytes), plane) for number in (0, 1)]
    with counting(b, *share(b, rows.count, part, parts)) as row:
        ends = (Interleaved(offset(b, pointer, (row, rows.nbytes))) for pointer in (source, to))
        source_row, result_row = ends
        stages.run(b, source_row, temporaries, result_row, 1.0 if scale is None else scale)
    b.ret_void()
    return Emitted(
        name,
        workspace=2 * buffer_nbytes,
        uses_threads=rows.count > 1 and rows.products >= isa.machine.serial_products,
        parts=max(1, min(MOST_PARTS, rows.count)),
    )
