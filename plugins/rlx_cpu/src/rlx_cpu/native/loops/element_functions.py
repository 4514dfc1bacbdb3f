"""Native functions of single element-wise ops, over dense arrays of any length, for eager calls and constant folding.

The kernel is the loop kernel that programs have, for a block of elements. A second function of the module calls it for one
block after the other; the last block ends where the arrays end, and overlaps the one before it. An array shorter than a block
is padded on the stack. One function therefore serves every shape, and every element is computed by the same vector body.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np

from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Builder
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.region import may_be_step
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, POINTER, VOID, copy_bytes, counting, fill_bytes, index, least
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.jit import JitCode
from rlx_cpu.native.llvm.objects import Function, library
from rlx_cpu.native.llvm.optimise import new_module
from rlx_cpu.native.loops.rows import emit_loop, reason_of

BLOCK: Final = 256
"""Elements of a block: a multiple of every vector's lanes, and of which the padding of a short array costs little."""

_NAME: Final = "elements"


@frozen(eq=False)
class NativeFunction:
    """A native element-wise function of arrays; operands broadcast as in NumPy.

    Attributes:
        result: The result's dtype.
        call: The native function: addresses of the operands and of the result, and the number of elements.
        code: Keeps `call` valid.
    """

    result: np.dtype[Any]
    call: Callable[..., None]
    code: JitCode

    def __call__(self, *operands: np.ndarray) -> np.ndarray:
        shape = operands[0].shape
        if any(x.shape != shape for x in operands):
            shape = np.broadcast_shapes(*(x.shape for x in operands))
            operands = tuple(np.broadcast_to(x, shape) for x in operands)
        if not all(x.flags.c_contiguous for x in operands):
            operands = tuple(x if x.flags.c_contiguous else x.copy("C") for x in operands)
        result = np.empty(shape, self.result)
        addresses = [x.__array_interface__["data"][0] for x in (*operands, result)]
        self.call(*addresses, result.size)
        return result


@lru_cache(maxsize=1024)
def element_function(op: Op, dtypes: tuple[DType, ...], isa: Isa) -> NativeFunction | None:
    """Return the native function of an element-wise op, compiled or read from the cache; `None` if it is no loop kernel."""
    if not may_be_step(op):
        return None  # a region has separate dims; its reference applies its steps, each of which may have a function
    types = tuple(TensorType(d, (BLOCK,)) for d in dtypes)
    if reason_of(op, types) is not None:
        return None
    builder = Builder(_NAME)
    results = builder.emit(op, [builder.input(f"x{i}", t) for i, t in enumerate(types)])
    if len(results) != 1 or prod(results[0].type.static_shape) != BLOCK:
        return None
    node = results[0].node
    layout = Layout(tuple(Place.dense(t) for t in types), (Place.dense(results[0].type),))
    sizes = tuple(t.dtype.itemsize for t in (*types, results[0].type))

    def emit(number: int) -> tuple[ir.Module, Emitted]:
        module = new_module(_NAME, isa)
        emitted = emit_loop(module, node, layout, isa, "block")
        assert emitted.fault is None, "an element-wise op reads no element by an index"
        write_walk(module, sizes)
        return module, Emitted(_NAME)

    compiled = library([Function(f"{_NAME} {BLOCK}", node, layout)], isa, emit)
    assert compiled.code is not None, "the emitter makes code"
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(sizes), ctypes.c_int64)
    return NativeFunction(results[0].dtype.numpy, prototype(compiled.code.address(_NAME)), compiled.code)


def write_walk(module: ir.Module, sizes: tuple[int, ...]) -> None:
    """Write `void elements(i8* operand, …, i8* result, i64 size)`, which calls `block` for each block of `size` elements.

    Args:
        module: The module with the function `block`.
        sizes: Bytes of an element of each operand and of the result.
    """
    b = ir.new_function(module, ir.FunctionType(VOID, [*[POINTER] * len(sizes), I64]), _NAME)
    *bases, size = b.function.args
    places = b.alloca(I64, len(sizes))
    is_short = b.icmp_signed("<", size, index(BLOCK))

    def run(addresses: Sequence[ir.LlvmValue]) -> None:
        for i, address in enumerate(addresses):
            b.store(address, b.moved(places, index(8 * i)), align=8)
        b.call(module.globals["block"], [places, index(0), index(1)])

    with b.if_else(is_short) as (short, long):
        with short:
            padded = [b.alloca(I64, BLOCK * itemsize // 8) for itemsize in sizes]
            for buffer, base, itemsize in zip(padded[:-1], bases[:-1], sizes[:-1], strict=True):
                # The rest of the block is computed and discarded; it is filled with zeros, because code may branch on loaded
                # values.
                fill_bytes(b, buffer, 0, index(BLOCK * itemsize))
                copy_bytes(b, buffer, base, b.mul(size, index(itemsize)))
            run(padded)
            copy_bytes(b, bases[-1], padded[-1], b.mul(size, index(sizes[-1])))
        with long:
            last = b.sub(size, index(BLOCK))
            with counting(b, 0, size, BLOCK) as position:
                start = least(b, position, last)
                run([b.moved(x, b.mul(start, index(n))) for x, n in zip(bases, sizes, strict=True)])
    b.ret_void()
