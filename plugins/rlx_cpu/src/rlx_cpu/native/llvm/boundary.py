"""The boundary to LLVM: the only module that calls llvmlite.

All functions here are `protected` (see `calls`): no signal handler interrupts them, and required memory is reserved before.

llvmlite takes one lock around every call into LLVM, although LLVM only requires that threads do not share a context or a target
machine. So each module has a separate context and a separate *line* (a code generation pipeline), and the two calls that
dominate the time are made without that lock if llvmlite's version allows it; otherwise modules wait for each other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from ctypes import string_at
from functools import cache
from threading import get_ident
from typing import Any, Final

from llvmlite import __version__ as llvmlite_version
from llvmlite import binding as llvm
from llvmlite.binding import ffi

from rlx_core.system.locks import in_child
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import calls
from rlx_cpu.native.llvm.c_library import known_symbols
from rlx_cpu.native.llvm.calls import protected, release, reserved

EFFORT: Final = 1
"""LLVM's level for machine code. The next ones schedule once more, take a tenth longer, and give code that is no faster."""

_BASE_NBYTES: Final = 16 << 20
"""Bytes that a call of LLVM may need whatever it is given: its own tables, and what its allocator asks of the system at once."""

_NBYTES_PER_TEXT: Final = 128
"""Bytes that LLVM needs for a byte of a module's text; 80 were measured for fused loops."""

_NBYTES_PER_CODE: Final = 8
"""Bytes that linking needs for a byte of an object file."""


@frozen
class Processor:
    """The target of code.

    Attributes:
        features: LLVM's feature string.
        cpu: LLVM's name of the processor; `None` for this machine's.
        triple: LLVM's name of the system, for portable code that is linked later; `None` for this machine's.
    """

    features: str
    cpu: str | None = None
    triple: str | None = None


# ------------------------------------------------------------------------------------------ this machine


def versions() -> tuple[tuple[int, ...], str]:
    """LLVM's version and llvmlite's."""
    return _llvm_version(), llvmlite_version


@cache
@protected
def _llvm_version() -> tuple[int, ...]:
    return tuple(llvm.llvm_version_info)


@cache
@protected
def triple() -> str:
    """Return LLVM's triple of this machine."""
    text: str = llvm.get_process_triple()
    return text


@cache
@protected
def host_name() -> str:
    """Return LLVM's name of this machine's processor."""
    name: str = llvm.get_host_cpu_name()
    return name


@cache
@protected
def host_features() -> Mapping[str, bool]:
    """LLVM's feature names for this machine, each with whether it has it; none where LLVM cannot ask."""
    try:
        return dict(llvm.get_host_cpu_features())
    except RuntimeError:
        return {}


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


# ------------------------------------------------------------------------------------------------ lock


def is_entered() -> bool:
    """Return whether this thread holds llvmlite's lock: then this is a signal handler, and no other thread can enter LLVM.

    The lock's owner is checked first: a handler may interrupt between acquiring the lock and recording it.
    """
    lock = getattr(getattr(ffi.lib, "_lock", None), "_lock", None)
    owned = getattr(lock, "_is_owned", None)
    return get_ident() in _entered if owned is None else bool(owned())


_entered: list[int] = []
"""The thread that has llvmlite's lock, as often as it has entered it."""


def _leave() -> None:
    with suppress(IndexError):  # entered before this module was there to note it
        _entered.pop()


def _forget() -> None:
    """In a forked child: the threads that had entered LLVM are not in it."""
    _entered[:] = [each for each in _entered if each == get_ident()]


calls.lock_checks.append(is_entered)
ffi.register_lock_callback(lambda: _entered.append(get_ident()), _leave)
in_child(_forget)


# ------------------------------------------------------------------------------------------------ code


_engines: Final[dict[object, llvm.ExecutionEngine]] = {}
"""LLVM's engines by a key that their `ExecutionEngine` has. llvmlite's objects have a finaliser, which frees LLVM's; in a cycle
with their `ExecutionEngine` the collector would run it in one thread while the server closes the same object."""


class ExecutionEngine:
    """Machine code in this process; addresses are valid as long as it lives."""

    def __init__(self, engine: llvm.ExecutionEngine) -> None:
        self._key = object()
        _engines[self._key] = engine

    @protected
    def address(self, function: str) -> int:
        """Return the address of a function; 0 if no function has that name."""
        return int(_engines[self._key].get_function_address(function))

    def __del__(  # defaults, because globals go first at the end
        self,
        engines: dict[object, llvm.ExecutionEngine] = _engines,
        release: Callable[[Any], None] = release,
    ) -> None:
        release(engines.pop(self._key))


@protected
def link(objects: Sequence[bytes], processor: Processor) -> ExecutionEngine:
    """Object files in this process.

    Raises:
        RuntimeError: LLVM does not take one.
        OutOfMemoryError: LLVM may need more memory than is available.
    """
    with reserved(_BASE_NBYTES + _NBYTES_PER_CODE * sum(map(len, objects)), "to link"):
        # In the context that is always there: an engine goes with its module, at a time that the collector may choose.
        empty = llvm.parse_assembly(f'target triple = "{llvm.get_process_triple()}"\n')
        # LLVM looks nothing up in this process by itself.
        for name, address in known_symbols().items():
            llvm.add_symbol(name, address)
        engine = llvm.create_mcjit_compiler(empty, _machine(processor))
        for data in objects:
            engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
        return ExecutionEngine(engine)


@protected
def object_file(text: str, processor: Processor, *, outer: str) -> bytes:
    """The object file of a module, in which functions with the attribute `outer` are made quickly.

    Raises:
        RuntimeError: LLVM does not take it.
        OutOfMemoryError: LLVM may need more memory than is available.
    """
    with _reserved_for(text), _line(processor) as line, _parsed(text) as module:
        line.optimise(module)
        if outer in text:
            _hurry(module, outer)
        return line.code(module)


@protected
def assembly(text: str, processor: Processor, *, outer: str) -> str:
    """The machine code as text, for people; errors as `object_file`."""
    with _reserved_for(text), _line(processor) as line, _parsed(text) as module:
        line.optimise(module)
        _hurry(module, outer)
        return str(_machine(processor, is_jit=False).emit_assembly(module))


def _reserved_for(text: str) -> AbstractContextManager[None]:
    return reserved(_BASE_NBYTES + _NBYTES_PER_TEXT * len(text), f"a module of {len(text)} bytes")


def _machine(processor: Processor, *, is_jit: bool = True) -> llvm.TargetMachine:
    """LLVM's target for a processor."""
    _initialise()
    if processor.triple is not None:  # code that is linked later, into a package: for Linux, position-independent
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        return llvm.Target.from_triple(processor.triple).create_target_machine(
            cpu=processor.cpu, features=processor.features, opt=EFFORT, reloc="pic", codemodel="small"
        )
    return _target().create_target_machine(
        cpu=processor.cpu or llvm.get_host_cpu_name(), features=processor.features, opt=EFFORT, jit=is_jit
    )


@cache
def _target() -> llvm.Target:
    return llvm.Target.from_default_triple()


@contextmanager
def _parsed(text: str) -> Iterator[llvm.ModuleRef]:
    """A module from its text, in a separate context; it is freed before its context, an order that the cycle collector ignores.

    Raises:
        RuntimeError: The text is no valid module.
    """
    context = llvm.create_context()
    module = llvm.parse_assembly(text, context)
    try:
        # An assertions build of LLVM aborts on what it did not expect, so nothing unverified goes further.
        module.verify()
        yield module
    finally:
        module.close()


def _hurry(module: llvm.ModuleRef, outer: str) -> None:
    """Disable optimisation of functions with attribute `outer`. Run other passes before: they skip `optnone` functions."""
    for function in module.functions:
        if not function.is_declaration and outer.encode() in function.attributes:
            function.add_function_attribute("noinline")
            function.add_function_attribute("optnone")


# ----------------------------------------------------------------------------------------------- lines


def _unlocked(function: Any) -> Any:
    """A function of LLVM without llvmlite's lock; as it is, where there is no way around that."""
    return getattr(function, "_cfn", function)


@frozen(eq=False)
class _CodegenPipeline:
    """The passes that modules go through. It is reused, because a new target machine computes its processor's properties again,
    which takes as long as a small module."""

    machine: llvm.TargetMachine
    builder: llvm.PassBuilder
    passes: llvm.ModulePassManager

    def optimise(self, module: llvm.ModuleRef) -> None:
        _unlocked(ffi.lib.LLVMPY_RunNewModulePassManager)(self.passes, module, self.builder)

    def code(self, module: llvm.ModuleRef) -> bytes:
        """Return the object code, as `TargetMachine.emit_object` does."""
        with ffi.OutputString() as error:
            buffer = _unlocked(ffi.lib.LLVMPY_TargetMachineEmitToMemory)(self.machine, module, 1, error)
            if not buffer:
                raise RuntimeError(str(error))
        try:
            return string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
        finally:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


_idle: defaultdict[Processor, deque[_CodegenPipeline]] = defaultdict(deque)


@contextmanager
def _line(processor: Processor) -> Iterator[_CodegenPipeline]:
    """A pipeline for exclusive use."""
    try:
        line = _idle[processor].pop()
    except IndexError:
        line = _new_line(processor)
    yield line
    _idle[processor].append(line)


def _new_line(processor: Processor) -> _CodegenPipeline:
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
    target = _machine(processor)
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2))
    return _CodegenPipeline(target, builder, passes)
