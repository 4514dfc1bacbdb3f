"""Windows whose place is computed: slices and updates that start at index operands.

The starts are clamped and become byte offsets at the beginning of the function; the rest is boxes whose sizes are known. An
update that takes over its operand's bytes writes its window alone, which is what makes a cache cheap to append to.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.codegen.movement.boxes import Axis, Box
from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.graph import Node
from rlx_core.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, address, memory_type, starting
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share
from rlx_cpu.native.movement.boxes import emit_boxes, prepared
from rlx_cpu.native.movement.mover import Mover
from rlx_cpu.native.table import native


def start_of(b: ir.IRBuilder, place: Place, pointer: ir.LlvmValue, limit: int) -> ir.LlvmValue:
    """Return a start operand clamped to 0..limit, as i64."""
    dtype = place.type.dtype
    raw = b.load(pointer, typ=memory_type(dtype), align=dtype.itemsize)
    is_signed = dtype.kind == "int"
    value = raw if dtype.itemsize == 8 else (b.sext if is_signed else b.zext)(raw, I64)
    compare = b.icmp_signed if is_signed else b.icmp_unsigned
    value = b.select(compare("<", value, index(limit)), value, index(limit))
    return b.select(b.icmp_signed("<", value, index(0)), index(0), value)


def starts_of(
    b: ir.IRBuilder, buffers: ir.LlvmValue, layout: Layout, first: int, shape: Sequence[int], window: Sequence[int]
) -> list[ir.LlvmValue]:
    """The starts, which are the operands from `first` on."""
    starts = []
    for axis, (n, size) in enumerate(zip(shape, window, strict=True)):
        (place,) = layout.required(first + axis)
        starts.append(start_of(b, place, pointer_at(b, buffers, first + axis), n - size))
    return starts


def emit_slice(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """A window copied out."""
    (x,), y = layout.required(0), layout.results[0]
    window = y.type.static_shape
    builder, buffers, tid, nthreads = starting(module, name)
    axes = tuple(Axis(n, t, s) for n, t, s in zip(window, y.strides, x.strides, strict=True))
    box = Box(axes)
    if not box.size:
        builder.ret_void()
        return Emitted(name, uses_threads=False)
    starts = starts_of(builder, buffers, layout, 1, x.type.static_shape, window)
    shift = offset(builder, pointer_at(builder, buffers, 0), *zip(starts, x.strides, strict=True))
    to = pointer_at(builder, buffers, len(layout.operands))
    units = emit_boxes(builder, isa, [(box, y.type.dtype.itemsize, to, shift)], tid, nthreads)
    builder.ret_void()
    return Emitted(name, uses_threads=units > 1 and y.type.static_nbytes >= isa.machine.serial_nbytes)


def emit_update(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """The operand, unless the result uses its memory, and the window over it; slabs of one axis are distributed."""
    (x, new), y = layout.required(0, 1), layout.results[0]
    shape, window, itemsize = y.type.static_shape, new.type.static_shape, y.type.dtype.itemsize
    builder, buffers, tid, nthreads = starting(module, name)
    if 0 in shape:
        builder.ret_void()
        return Emitted(name, uses_threads=False)
    starts = starts_of(builder, buffers, layout, 2, shape, window)
    axis = next((a for a, n in enumerate(shape) if n > 1), None)
    origin, update, to = (pointer_at(builder, buffers, k) for k in (0, 1, len(layout.operands)))
    is_elsewhere = builder.icmp_unsigned("!=", builder.ptrtoint(origin, I64), builder.ptrtoint(to, I64))
    other_axes = [a for a in range(len(shape)) if a != axis]

    def slab(sizes: Sequence[int], source: Place, to: ir.LlvmValue, read: ir.LlvmValue) -> None:
        box = Box(tuple(Axis(sizes[a], y.strides[a], source.strides[a]) for a in other_axes))
        if box.size:
            for piece, width in prepared(isa, box, itemsize):
                mover = Mover(builder, isa, width)
                mover.move(address(builder, to, piece.to), address(builder, read, piece.start), piece.axes)

    begin: ir.LlvmValue
    if axis is None:  # one element is one slab
        count, reach, begin, (step, source_step, new_step) = 1, 1, index(0), (0, 0, 0)
    else:
        count, reach, begin = shape[axis], window[axis], starts[axis]
        step, source_step, new_step = (place.strides[axis] for place in (y, x, new))
    low, high = share(builder, count, tid, nthreads)
    with counting(builder, low, high) as i:
        with builder.if_then(is_elsewhere):
            slab(shape, x, offset(builder, to, (i, step)), offset(builder, origin, (i, source_step)))
        # As an unsigned number, a position before the window lies behind it.
        inside = builder.sub(i, begin)
        with builder.if_then(builder.icmp_unsigned("<", inside, index(reach))):
            others = [(starts[a], y.strides[a]) for a in other_axes]
            place = offset(builder, to, (i, step), *others)
            slab(window, new, place, offset(builder, update, (inside, new_step)))
    builder.ret_void()
    return Emitted(name, uses_threads=count > 1 and y.type.static_nbytes >= isa.machine.serial_nbytes)


native.register(DynamicSlice, name="window")(emit_slice)
native.register(DynamicUpdateSlice, in_place=(0,), name="window_update")(emit_update)
