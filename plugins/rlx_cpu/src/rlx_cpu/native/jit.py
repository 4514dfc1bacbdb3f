"""LLVM modules as machine code in this process, with the object files kept on disk.

An object is made once for a text, an instruction set and a version of LLVM; another process that asks for the same gets it from
the cache and links it. The cache is a convenience: whatever is wrong with it, the module is compiled.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import frozen
from llvmlite import __version__ as llvmlite
from llvmlite import binding as llvm

from rlx_core.errors import CacheError
from rlx_core.pipeline.backend import ObjectStore
from rlx_core.plugins import stamp_of
from rlx_core.runtime.disk import DiskCache, cache_directory
from rlx_cpu.native.background import Later, later
from rlx_cpu.native.isa import Isa, host_features
from rlx_cpu.native.library import make_known

if TYPE_CHECKING:
    from llvmlite import ir

__all__ = [
    "Code",
    "assembly",
    "compile_module",
    "compile_named",
    "generate",
    "keeping",
    "link",
    "machine_words",
    "new_module",
    "object_cache",
]

VERSION: Final = "2"
"""Raised when the same text would have to give other code."""

_lock = threading.Lock()


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    make_known()


def new_module(name: str) -> ir.Module:
    """An empty module for this machine."""
    from llvmlite import ir  # here, because a process whose code is all cached builds no module

    module = ir.Module(name, context=ir.Context())
    module.triple = triple()
    return module


@cache
def triple() -> str:
    """What LLVM calls this machine; asked once, because each question waits until LLVM has done what it is doing."""
    found: str = llvm.get_process_triple()
    return found


class Code:
    """Machine code in this process, or on its way there; addresses are valid as long as it lives.

    Args:
        engine: What has it, or will have.
        is_cached: Whether it was found in a cache.
    """

    def __init__(self, engine: llvm.ExecutionEngine | Later[llvm.ExecutionEngine], is_cached: bool) -> None:
        self._engine = engine
        self.is_cached = is_cached

    def address(self, function: str) -> int:
        """Where a function starts; KeyError if none has that name.

        Raises:
            RuntimeError: LLVM did not take the code.
        """
        if isinstance(self._engine, Later):
            self._engine = self._engine.result()
        found = int(self._engine.get_function_address(function))
        if not found:
            raise KeyError(f"the code has no function {function}")
        return found


@cache
def default_cache(directory: Path) -> DiskCache | None:
    try:
        return DiskCache(directory)
    except CacheError:
        return None


_chosen: ContextVar[tuple[ObjectStore | None] | None] = ContextVar("objects", default=None)


@contextmanager
def keeping(store: ObjectStore | None) -> Iterator[None]:
    """What is compiled inside is kept in `store`; nowhere if it is `None`."""
    token = _chosen.set((store,))
    try:
        yield
    finally:
        _chosen.reset(token)


def object_cache() -> ObjectStore | None:
    """Where object files are kept: what `keeping` says, else in the cache directory; `None` if that cannot be used."""
    chosen = _chosen.get()
    return default_cache(cache_directory() / "objects") if chosen is None else chosen[0]


def machine(isa: Isa, *, is_jit: bool = True) -> llvm.TargetMachine:
    """LLVM's target for an instruction set."""
    _initialise()
    return _target().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=isa.features(host_features()), opt=3, jit=is_jit
    )


@cache
def _target() -> llvm.Target:
    return llvm.Target.from_default_triple()


def compile_module(module: ir.Module, isa: Isa) -> Code:
    """Compile a module, or link its object from the cache, where it is kept by its text."""
    text = str(module)
    return _kept(text, lambda: text, isa)


def compile_named(name: str, make: Callable[[], ir.Module], isa: Isa) -> Code:
    """The code of a module that this package makes alike in every process, kept by its name and the package's stamp."""
    stamp = stamp_of(("rlx_cpu",))
    return compile_module(make(), isa) if stamp is None else _kept(f"{name} {stamp}", lambda: str(make()), isa)


def _kept(identity: str, text: Callable[[], str], isa: Isa) -> Code:
    """The code of a text from the cache, or made in the background and kept."""
    key, store = hashlib.sha256(repr((machine_words(isa), identity)).encode()).hexdigest(), object_cache()
    kept = None if store is None else store.get(key)
    if store is not None and kept is not None:
        try:
            return Code(link([kept], isa), is_cached=True)
        except RuntimeError as error:
            store.drop(key, str(error))
    made = later(lambda: generate(text(), isa))
    code = Code(later(lambda: link([made.result()], isa)), is_cached=False)
    if store is not None:
        later(lambda: store.put(key, made.result()))
    return code


def link(objects: Sequence[bytes], isa: Isa) -> llvm.ExecutionEngine:
    """Object files in this process.

    Raises:
        RuntimeError: LLVM does not take one.
    """
    with _lock:
        engine = llvm.create_mcjit_compiler(_parsed(f'target triple = "{triple()}"\n'), machine(isa))
        for data in objects:
            engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
    return engine


def generate(text: str, isa: Isa) -> bytes:
    """The object file of a module.

    Raises:
        RuntimeError: LLVM does not take it.
    """
    with _lock:
        data: bytes = _optimiser(isa).machine.emit_object(_optimised(text, isa))
    return data


@cache
def machine_words(isa: Isa) -> str:
    """Everything about the machine and the compiler that changes the code of a text."""
    return repr(
        (VERSION, isa.name, isa.features(host_features()), llvm.get_host_cpu_name(), llvm.llvm_version_info, llvmlite)
    )


def _parsed(text: str) -> llvm.ModuleRef:
    # An assertions build of LLVM aborts on what it did not expect, so nothing unverified goes further.
    parsed = llvm.parse_assembly(text)
    parsed.verify()
    return parsed


@frozen(eq=False)
class _Optimiser:
    """What a module goes through; made once, because a new target machine works out its processor's properties again."""

    machine: llvm.TargetMachine
    builder: llvm.PassBuilder
    passes: llvm.ModulePassManager


@cache
def _optimiser(isa: Isa) -> _Optimiser:
    """The few passes that modules need.

    Kernels are vectors and tiles already; what remains scalar is so on purpose. So the road of `-O2` (inlining by cost, loops
    vectorised and unrolled, everything twice) takes three to five times as long as these passes, for code that is faster by a
    hundredth or two.
    Rotating loops is the one that matters: without it, machine code takes longer to make and to run.
    """
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_new_gvn_pass()
    passes.add_instruction_combine_pass()
    passes.add_loop_simplify_pass()
    passes.add_loop_rotate_pass()
    passes.add_simplify_cfg_pass()
    target = machine(isa)
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2))
    return _Optimiser(target, builder, passes)


def _optimised(text: str, isa: Isa) -> llvm.ModuleRef:
    optimiser, parsed = _optimiser(isa), _parsed(text)
    optimiser.passes.run(parsed, optimiser.builder)
    return parsed


def assembly(module: ir.Module, isa: Isa) -> str:
    """The machine code as text, for people."""
    return str(machine(isa, is_jit=False).emit_assembly(_optimised(str(module), isa)))
