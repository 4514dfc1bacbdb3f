"""`clock`: the system's monotonic clock, for modules of the run-time."""

from __future__ import annotations

import time
from typing import Final

from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, I64, POINTER, address
from rlx_cpu.native.llvm.c_library import has_clock
from rlx_cpu.native.llvm.ir.functions import declare

_SECOND: Final = 1_000_000_000


def emit_clock(module: ir.Module) -> ir.Function:
    """`clock()`: nanoseconds of the system's monotonic clock; 0 on a platform without one."""
    b = ir.new_function(module, ir.FunctionType(I64, []), "clock", is_internal=True)
    if not has_clock():
        b.ret(ir.LlvmConstant(I64, 0))
        return b.function
    spec = b.alloca(I64, size=2)
    spec.align = 8
    get = declare(module, "clock_gettime", I32, [I32, POINTER])
    b.call(get, [ir.LlvmConstant(I32, time.CLOCK_MONOTONIC), spec])
    seconds, nanoseconds = (b.load(address(b, spec, 8 * i), typ=I64, align=8) for i in range(2))
    b.ret(b.add(b.mul(seconds, ir.LlvmConstant(I64, _SECOND)), nanoseconds))
    return b.function
