"""The CPU target and its compiler."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from rlx_core.errors import ConfigError, Fact
from rlx_core.ir.dtypes import DType, bf16, i8, i16, u8
from rlx_core.ir.forms import Json
from rlx_core.ir.lir import Lir
from rlx_core.ir.op import Op
from rlx_core.pipeline.backend import Backend, Level, Listing, ObjectStore, Outline, Params, Program, Target
from rlx_core.pipeline.kernels import Kernel, KernelTable
from rlx_cpu import tier

if TYPE_CHECKING:
    from rlx_core.ir.element_functions import ElementFunction, ElementFunctions
    from rlx_core.pipeline.backend import Blobs, Keep, PackedCode, Unpack

LONGEST_KERNEL = 128
"""Element-wise ops in one kernel. LLVM takes longer than in proportion for more, and values that do not fit into registers
make the kernel slower: 1,024 ops on 1,000 numbers take 65 µs in kernels of 32, 140 µs of 128, and 235 µs as one."""


FAST_INTEGERS = (i8, u8, i16)
"""Integers of which native products take less time than those of f32.

A lane of a vector multiplies one f32 in an instruction. It multiplies two i16 where bytes are widened to pairs: `pmaddwd` and a
sum are two instructions for twice as many products, and a quarter or half of the bytes of f32 are read; 1.5 to 3 times as fast,
measured on AVX2 (0084). It multiplies four bytes where there is an instruction, which adds as well (`Isa.dots`): processors begin
as many of those in a cycle as of fused products of f32, by their makers' tables, so that up to four times as many products are
done; not measured. NEON without it has two multiply-adds for a pair, as many instructions as f32, and reads a quarter of the
bytes; not measured."""


@cache
def kernel_table(is_native: bool) -> KernelTable:
    """All kernels of a tier: the NumPy rows, and for the native tier its own before them; imported when they are needed."""

    def rows(op: type[Op] | None) -> Iterable[Kernel]:
        from rlx_cpu.kernels import kernels

        numpy_rows = kernels if op is None else kernels.candidates(op)
        if not is_native:
            return numpy_rows
        from rlx_cpu.native.table import native

        return native.before(numpy_rows, op)

    return KernelTable("cpu", plugin="cpu", more=rows)


def adopt(row: Kernel, is_native: bool) -> Kernel | None:
    """Return another package's row as a row of a tier; `None` if it is not applicable."""
    if row.tier != "native":
        return row
    from rlx_cpu.native.table import adopted

    return adopted(row, is_native)


@contextmanager
def keeping(objects: ObjectStore | None, options: Mapping[str, Any]) -> Iterator[None]:
    """Context in which compiled native code is stored in `objects`, including the runtime, compiled if necessary."""
    if not tier.is_native(options):
        yield
        return
    from rlx_cpu.native.llvm import jit
    from rlx_cpu.native.runtime.code import STEPS
    from rlx_cpu.native.runtime.linked import code_of

    with jit.keeping(objects):
        code_of(STEPS)
        yield


def element_functions(options: Mapping[str, Any]) -> ElementFunctions | None:
    """The native functions of element-wise ops for eager calls and constant folding under these options; `None` on the NumPy
    tier."""
    isa = tier.isa_of(options)
    if isa is None:
        return None

    known: dict[tuple[Op, tuple[DType, ...]], ElementFunction | None] = {}

    def found(op: Op, dtypes: tuple[DType, ...]) -> ElementFunction | None:
        key = op, dtypes
        if key not in known:
            from rlx_cpu.native.loops.element_functions import element_function

            known[key] = element_function(op, dtypes, isa)
        return known[key]

    return found


def fast_products(options: Mapping[str, Any]) -> tuple[DType, ...]:
    """Return the dtypes that native code multiplies faster than f32: integers, and bf16 where an instruction multiplies pairs."""
    isa = tier.isa_of(options)
    if isa is None:
        return ()
    return (*FAST_INTEGERS, bf16) if isa.multiplies_bf16 else FAST_INTEGERS


class CpuBackend(Backend):
    """This machine's processor: native code where llvmlite is installed, NumPy for the rest."""

    has_outlines = True

    @property
    def target(self) -> Target:  # type: ignore[override]  # computed on access, not assigned
        return self.target_for({})

    def target_for(self, options: Mapping[str, Any]) -> Target:
        return Target(
            name="cpu",
            kernels=kernel_table(tier.is_native(options)),
            alignment=64,  # a cache line, and the widest vector of AVX-512
            accepts_views=True,
            region_limits=(LONGEST_KERNEL, None),
            properties=tier.properties(options),
            tiers=tier.tiers(options),
            element_functions=element_functions(options),
            adopt=partial(adopt, is_native=tier.is_native(options)),
            fast_products=fast_products(options),
        )

    def compile(self, lir: Lir, target: Target, options: Mapping[str, Any]) -> Program:
        # Imports are here, because native code that is there already needs none of them.
        chosen = options.get("options", {})
        if chosen.get("cpu.oracle"):
            from rlx_cpu.oracle import OracleProgram

            return OracleProgram(lir)
        poison = bool(chosen.get("cpu.poison"))
        settings = tier.settings(chosen) if lir.origin is None else tier.settings_of(lir.origin.template, chosen)
        if settings is None:
            from rlx_cpu.numpy_program import numpy_program

            return numpy_program(lir, target.kernels, poison=poison)
        from rlx_cpu.native.runtime.program import native_program

        return native_program(lir, target.kernels, settings, poison=poison)

    def outline(self, lir: Lir, target: Target, options: Mapping[str, Any]) -> Outline | None:
        chosen = options.get("options", {})
        if chosen.get("cpu.oracle") or chosen.get("cpu.poison") or lir.origin is None:
            return None
        template = lir.origin.template
        settings = tier.settings_of(template, chosen)
        if settings is None or settings.tuning is not None:
            return None
        from rlx_cpu.native.runtime.recorded import outline  # here, because few programs have many sizes

        def is_current() -> bool:
            now = tier.settings_of(template, chosen)
            return now is settings or now == settings

        return outline(lir, target.kernels, settings, is_current)

    def build(self, lir: Lir, target: Target, options: Mapping[str, Any], objects: ObjectStore | None) -> Program:
        with keeping(objects, options.get("options", {})):
            return self.compile(lir, target, options)

    def another(self, lir: Lir, target: Target, options: Mapping[str, Any], code: object) -> Program | None:
        chosen = options.get("options", {})
        if not tier.is_native(chosen):
            return None
        from rlx_cpu.native.runtime.compiled import CompiledSteps, Settings
        from rlx_cpu.native.runtime.program import native_program

        assert isinstance(code, CompiledSteps), "it is what a native program had"
        assert isinstance(code.settings, Settings), "it was compiled here"
        # CPUs are counted only for code that can use several: it takes longer than all the rest.
        if code.uses_threads and code.settings != tier.settings(chosen):
            return None
        return native_program(lir, target.kernels, code.settings, code.on(lir))

    def expect(self, options: Mapping[str, Any], objects: ObjectStore | None) -> None:
        with keeping(objects, options):
            pass

    def levels(self, target: Target) -> tuple[Level, ...]:
        if target.properties["tier"] != "native":
            return ()
        from rlx_cpu.native.listing import LEVELS

        return LEVELS

    def emit(
        self, lir: Lir, target: Target, options: Mapping[str, Any], level: str, steps: Sequence[int]
    ) -> Sequence[Listing]:
        settings = tier.settings(options.get("options", {}))
        assert settings is not None, "only the native tier has levels of its own"
        from rlx_cpu.native.listing import listings

        return listings(lir, target.kernels, settings, level, steps)

    def pack(
        self, programs: Sequence[tuple[Lir, Params]], target: Target, variant: str | None, keep: Keep
    ) -> PackedCode:
        reason = tier.reason_without() or (None if sys.platform == "linux" else "code for packages is made on Linux")
        if reason is not None:
            raise ConfigError("package: native code cannot be made here", Fact("because", reason))
        from rlx_cpu.packaged.writing import packed  # here, because it brings LLVM

        return packed(programs, target.kernels, variant, keep)

    def reason_against_code(self, form: Json, options: Mapping[str, Any]) -> str | None:
        from rlx_cpu.packaged.opening import reason_against_code  # here, because few programs come from packages

        return reason_against_code(form, options)

    def reason_against_compiling(self, options: Mapping[str, Any]) -> str | None:
        return None if options.get("cpu.tier") == "numpy" else tier.reason_without()

    def unpack(self, form: Json, blobs: Blobs, options: Mapping[str, Any]) -> Unpack:
        from rlx_cpu.packaged.opening import unpacked  # as above

        return unpacked(form, blobs, tier.threads_of(options), tier.spin_of(options))

    def devices(self) -> list[str]:
        properties = tier.properties({})
        how = f"native code, {properties['isa']}" if properties["tier"] == "native" else f"NumPy: {properties['why']}"
        return [f"{platform.processor() or platform.machine()} ({how})"]
