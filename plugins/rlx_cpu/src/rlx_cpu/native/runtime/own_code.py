"""The modules of the run-time, made here: each is alike in every process, and kept by its name."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rlx_cpu.native import runtime
from rlx_cpu.native.llvm.c_library import add_symbols
from rlx_cpu.native.llvm.isa import Isa, host_isa
from rlx_cpu.native.llvm.jit import JitCode, compile_named
from rlx_cpu.native.llvm.optimise import new_module
from rlx_cpu.native.runtime.code import ENTRY, RESULT_MEMORY, STEPS

if TYPE_CHECKING:
    from rlx_cpu.native.llvm import ir


def module_of(name: str, isa: Isa) -> ir.Module:
    """One of the modules, for an instruction set."""
    # Here, because a process whose code is all cached builds none of them.
    from rlx_cpu.native.runtime.entry_code import emit_enter
    from rlx_cpu.native.runtime.interrupt_code import emit_interrupted
    from rlx_cpu.native.runtime.pool_code import emit_runtime
    from rlx_cpu.native.runtime.result_memory_code import emit_allocator

    module = new_module(name, isa)
    if name == STEPS:
        emit_runtime(module, isa)
    elif name == ENTRY:
        emit_enter(module)
        emit_interrupted(module)
    else:
        assert name == RESULT_MEMORY, "there are three"
        emit_allocator(module)
    return module


def compiled(name: str) -> JitCode:
    """The code of a module for this machine: from the cache, or made in the background and kept."""
    isa = host_isa()
    assert isa is not None, "the native tier is used only where an instruction set is known"
    if name == ENTRY:
        make_interpreter_known()
    return compile_named(name, lambda: module_of(name, isa), isa)


@cache
def make_interpreter_known() -> None:
    """Register the interpreter's functions for code that calls them."""
    add_symbols(runtime.interpreter.addresses())
