"""`interrupted`: whether a signal handler interrupted the code of this thread, in LLVM IR; loops poll it.

Python handlers run only in the main thread, with the interpreter's lock, and only when signals are checked: this function
checks them a few times a second. An exception of a handler is saved until the program's native code has returned.
"""

from __future__ import annotations

from typing import Final

from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, I64, POINTER, VOID, address
from rlx_cpu.native.llvm.ir.functions import declare
from rlx_cpu.native.runtime.clock_code import emit_clock
from rlx_cpu.native.runtime.code import CAUGHT, MAIN_THREAD, NEXT

INTERVAL_NS: Final = 50_000_000
"""Between two looks: who presses Ctrl-C does not notice, nor does a program that has to wait for the lock."""


def emit_interrupted(module: ir.Module) -> None:
    """Add `interrupted(record)`: 1 if the loop is to be left, else 0. Called with the interpreter's lock or without."""
    clock = emit_clock(module)
    b = ir.new_function(module, ir.FunctionType(I64, [I64]), "interrupted")
    record = b.inttoptr(b.function.args[0], POINTER)
    go_on, look, main, leave = (b.function.append_basic_block(name) for name in ("go_on", "look", "main", "leave"))
    identity = b.call(declare(module, "PyThread_get_thread_ident", I64, []), [])
    b.cbranch(b.icmp_signed("==", identity, b.load(address(b, record, MAIN_THREAD), typ=I64, align=8)), main, go_on)
    b.position_at_end(main)
    caught = b.load(address(b, record, CAUGHT), typ=I64, align=8)
    with b.if_then(b.icmp_signed("!=", caught, ir.LlvmConstant(I64, 0))):
        b.ret(ir.LlvmConstant(I64, 1))  # the loops around this one, and those behind it
    now = b.call(clock, [])
    following = address(b, record, NEXT)
    b.cbranch(b.icmp_signed("<", now, b.load(following, typ=I64, align=8)), go_on, look)
    b.position_at_end(look)
    b.store(b.add(now, ir.LlvmConstant(I64, INTERVAL_NS)), following, align=8)
    gil_state = b.call(declare(module, "PyGILState_Ensure", I32, []), [])
    raised = b.icmp_signed("!=", b.call(declare(module, "PyErr_CheckSignals", I32, []), []), ir.LlvmConstant(I32, 0))
    with b.if_then(raised, likely=False):
        parts = [address(b, record, CAUGHT + 8 * i) for i in range(3)]
        b.call(declare(module, "PyErr_Fetch", VOID, [POINTER] * 3), parts)
    b.call(declare(module, "PyGILState_Release", VOID, [I32]), [gil_state])
    b.cbranch(raised, leave, go_on)
    b.position_at_end(leave)
    b.ret(ir.LlvmConstant(I64, 1))
    b.position_at_end(go_on)
    b.ret(ir.LlvmConstant(I64, 0))
