"""LLVM's part: a module's text in, an object file out, in several threads at once.

llvmlite takes one lock around every call into LLVM, which itself asks for no more than that threads do not share a context or a
target machine. So each module has a context of its own and goes through a *line* of its own, and the two calls that take all the
time are made without that lock, where llvmlite's functions have what is needed for it; elsewhere modules wait for each other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import string_at
from functools import cache
from typing import Any, Final

from llvmlite import __version__ as llvmlite
from llvmlite import binding as llvm
from llvmlite.binding import ffi

from rlx_core.system.locks import forks_wait
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import OUTER
from rlx_cpu.native.llvm.c_library import addresses
from rlx_cpu.native.llvm.isa import Isa, host_features, host_name

__all__ = ["assembly", "generate", "machine", "machine_words", "new_module", "triple", "triple_for"]

VERSION: Final = "3"
"""Raised when the same text would have to give other code."""

EFFORT: Final = 1
"""LLVM's level for machine code. The next ones schedule once more, take a tenth longer, and give code that is no faster."""


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name, address in addresses().items():  # LLVM looks nothing up in this process by itself
        llvm.add_symbol(name, address)


@cache
def triple() -> str:
    """What LLVM calls this machine."""
    found: str = llvm.get_process_triple()
    return found


def new_module(name: str, isa: Isa | None = None) -> ir.Module:
    """An empty module for this machine, or for those that portable code is for."""
    return ir.Module(name, triple() if isa is None or isa.cpu is None else triple_for(isa))


@cache
def features(isa: Isa) -> str:
    """The feature string of an instruction set on this machine; every program that is linked needs it."""
    return isa.features(host_features())


@cache
def machine_words(isa: Isa) -> str:
    """Everything about the machine and the compiler that changes the code of a text."""
    return repr(
        (VERSION, isa.name, isa.machine, features(isa), isa.cpu or host_name(), llvm.llvm_version_info, llvmlite)
    )


def machine(isa: Isa, *, is_jit: bool = True) -> llvm.TargetMachine:
    """LLVM's target for an instruction set."""
    _initialise()
    if isa.cpu is not None:
        return _portable_machine(isa)
    return _target().create_target_machine(cpu=host_name(), features=features(isa), opt=EFFORT, jit=is_jit)


def _portable_machine(isa: Isa) -> llvm.TargetMachine:
    """LLVM's target for code that is linked later, by whoever packs it: for Linux, at any address."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple_for(isa))
    return target.create_target_machine(cpu=isa.cpu, features=features(isa), opt=EFFORT, reloc="pic", codemodel="small")


def triple_for(isa: Isa) -> str:
    """What LLVM calls the machines that an instruction set's portable code is for."""
    return f"{isa.arch}-unknown-linux-gnu"


@cache
def _target() -> llvm.Target:
    return llvm.Target.from_default_triple()


@contextmanager
def _parsed(text: str) -> Iterator[llvm.ModuleRef]:
    """A module from its text, in a context of its own; gone before its context, which the collector of cycles would not heed.

    Raises:
        RuntimeError: It is no module.
    """
    context = llvm.create_context()
    module = llvm.parse_assembly(text, context)
    try:
        # An assertions build of LLVM aborts on what it did not expect, so nothing unverified goes further.
        module.verify()
        yield module
    finally:
        module.close()


def generate(text: str, isa: Isa) -> bytes:
    """The object file of a module.

    Raises:
        RuntimeError: LLVM does not take it.
    """
    with forks_wait, _line(isa) as line, _parsed(text) as module:
        line.optimise(module)
        if OUTER in text:
            _hurry(module)
        return line.code(module)


def assembly(module: ir.Module, isa: Isa) -> str:
    """The machine code as text, for people."""
    with forks_wait, _line(isa) as line, _parsed(str(module)) as found:
        line.optimise(found)
        _hurry(found)
        return str(machine(isa, is_jit=False).emit_assembly(found))


def _hurry(module: llvm.ModuleRef) -> None:
    """Have machine code made quickly of what is `OUTER`. Not before other passes have run: they would say that they do not."""
    for function in module.functions:
        if not function.is_declaration and OUTER.encode() in function.attributes:
            function.add_function_attribute("noinline")
            function.add_function_attribute("optnone")


# ----------------------------------------------------------------------------------------------- lines


def _unlocked(function: Any) -> Any:
    """A function of LLVM without llvmlite's lock; as it is, where there is no way around that."""
    return getattr(function, "_cfn", function)


@frozen(eq=False)
class _Line:
    """What modules go through one after the other. It is used again, because a new target machine works out its processor's
    properties anew, which takes as long as a small module does."""

    machine: llvm.TargetMachine
    builder: llvm.PassBuilder
    passes: llvm.ModulePassManager

    def optimise(self, module: llvm.ModuleRef) -> None:
        _unlocked(ffi.lib.LLVMPY_RunNewModulePassManager)(self.passes, module, self.builder)

    def code(self, module: llvm.ModuleRef) -> bytes:
        """What `TargetMachine.emit_object` does."""
        with ffi.OutputString() as error:
            made = _unlocked(ffi.lib.LLVMPY_TargetMachineEmitToMemory)(self.machine, module, 1, error)
            if not made:
                raise RuntimeError(str(error))
        try:
            return string_at(ffi.lib.LLVMPY_GetBufferStart(made), ffi.lib.LLVMPY_GetBufferSize(made))
        finally:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(made)


_idle: defaultdict[Isa, deque[_Line]] = defaultdict(deque)


@contextmanager
def _line(isa: Isa) -> Iterator[_Line]:
    """A line that nobody else uses meanwhile."""
    try:
        line = _idle[isa].pop()
    except IndexError:
        line = _new_line(isa)
    yield line
    _idle[isa].append(line)


def _new_line(isa: Isa) -> _Line:
    """A line with the few passes that modules need.

    Kernels are vectors and tiles already; what remains scalar is so on purpose. So the path of `-O2` (inlining by cost, loops
    vectorised and unrolled, everything twice) takes three to five times as long as these passes, for code that is faster by a
    hundredth or two.
    Rotating loops is the one that matters: without it, machine code takes longer to make and to run. Looking for equal values
    again (GVN) took as long as all others together, and code without it is as fast.
    """
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_loop_rotate_pass()
    passes.add_simplify_cfg_pass()
    target = machine(isa)
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2))
    return _Line(target, builder, passes)
