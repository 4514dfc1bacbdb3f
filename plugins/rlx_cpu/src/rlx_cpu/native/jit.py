"""LLVM modules as machine code in this process, with the object files kept on disk.

A module is compiled once for a text, an instruction set and a version of LLVM; another process that asks for the same gets
the object from the cache and links it. The cache is a convenience: whatever is wrong with it, the module is compiled.
"""

from __future__ import annotations

import hashlib
import threading
from functools import cache
from typing import Final

from llvmlite import binding as llvm
from llvmlite import ir

from rlx_core.errors import CacheError
from rlx_core.runtime.disk import DiskCache, cache_directory
from rlx_cpu.native.isa import Isa, host_features
from rlx_cpu.native.library import make_known

__all__ = ["Code", "assembly", "compile_module", "new_module", "object_cache"]

VERSION: Final = "1"
"""Raised when the same text would have to give other code."""

_lock = threading.Lock()


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    make_known()


def new_module(name: str) -> ir.Module:
    """An empty module for this machine."""
    module = ir.Module(name, context=ir.Context())
    module.triple = llvm.get_process_triple()
    return module


class Code:
    """Machine code in this process; addresses are valid as long as it lives."""

    def __init__(self, engine: llvm.ExecutionEngine, is_cached: bool) -> None:
        self._engine = engine
        self.is_cached = is_cached

    def address(self, function: str) -> int:
        """Where a function of the module starts."""
        found = self._engine.get_function_address(function)
        assert found, f"the module has a function {function}"
        return int(found)


@cache
def object_cache() -> DiskCache | None:
    """Where object files are kept; `None` if the directory cannot be used."""
    try:
        return DiskCache(cache_directory() / "objects")
    except CacheError:
        return None


def machine(isa: Isa, *, is_jit: bool = True) -> llvm.TargetMachine:
    """LLVM's target for an instruction set."""
    _initialise()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=isa.features(host_features()), opt=3, jit=is_jit
    )


def compile_module(module: ir.Module, isa: Isa) -> Code:
    """Compile a module, or link its object from the cache."""
    text = str(module)
    key = _key(text, isa)
    store = object_cache()
    kept = None if store is None else store.get(key)
    with _lock:
        _initialise()
        if kept is not None:
            try:
                engine = llvm.create_mcjit_compiler(_parsed(f'target triple = "{module.triple}"\n'), machine(isa))
                engine.add_object_file(llvm.ObjectFileRef.from_data(kept))
                engine.finalize_object()
            except RuntimeError as error:
                assert store is not None, "the entry came from the cache"
                store.drop(key, str(error))
            else:
                return Code(engine, is_cached=True)
        made = _optimised(text, isa)
        engine = llvm.create_mcjit_compiler(made, machine(isa))
        objects: list[bytes] = []
        engine.set_object_cache(lambda _, data: objects.append(data), lambda _: None)
        engine.finalize_object()
    if store is not None and objects:
        store.put(key, objects[0])
    return Code(engine, is_cached=False)


def _key(text: str, isa: Isa) -> str:
    parts = (VERSION, isa.name, isa.features(host_features()), llvm.get_host_cpu_name(), llvm.llvm_version_info, text)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _parsed(text: str) -> llvm.ModuleRef:
    # An assertions build of LLVM aborts on what it did not expect, so nothing unverified goes further.
    parsed = llvm.parse_assembly(text)
    parsed.verify()
    return parsed


def _optimised(text: str, isa: Isa) -> llvm.ModuleRef:
    parsed = _parsed(text)
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    # Kernels are vectors already; what remains scalar is so on purpose.
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    builder = llvm.create_pass_builder(machine(isa), tuning)
    builder.getModulePassManager().run(parsed, builder)
    return parsed


def assembly(module: ir.Module, isa: Isa) -> str:
    """The machine code as text, for people."""
    _initialise()
    return str(machine(isa, is_jit=False).emit_assembly(_optimised(str(module), isa)))
