"""The CPU target and its compiler."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rlx_core.errors import ConfigError, Fact
from rlx_core.ir.forms import Json
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import (
    Backend,
    Blobs,
    Keep,
    Level,
    Listing,
    ObjectStore,
    PackedCode,
    Params,
    Program,
    Target,
    Unpack,
)
from rlx_cpu import tier
from rlx_cpu.element_functions import element_functions

__all__ = ["CpuBackend"]

LONGEST_KERNEL = 128
"""Element-wise ops in one kernel. LLVM takes longer than in proportion for more, and values that do not fit into registers
make the kernel slower: 1,024 ops on 1,000 numbers take 65 µs in kernels of 32, 140 µs of 128, and 235 µs as one."""


class CpuBackend(Backend):
    """This machine's processor: native code where llvmlite is installed, NumPy for the rest."""

    @property
    def target(self) -> Target:  # type: ignore[override]  # computed on access, not assigned
        return self.target_for({})

    def target_for(self, options: Mapping[str, Any]) -> Target:
        return Target(
            name="cpu",
            kernels=tier.kernel_table(tier.is_native(options)),
            alignment=64,  # a cache line, and the widest vector of AVX-512
            accepts_views=True,
            region_limits=(LONGEST_KERNEL, None),
            properties=tier.properties(options),
            tiers=tier.tiers(options),
            element_functions=element_functions(options),
            adopt=partial(tier.adopt, is_native=tier.is_native(options)),
        )

    def compile(self, lir: Lir, target: Target, options: Mapping[str, Any]) -> Program:
        # Imports are here, because native code that is there already needs none of them.
        chosen = options.get("options", {})
        if chosen.get("cpu.oracle"):
            from rlx_cpu.oracle import OracleProgram

            return OracleProgram(lir)
        poison = bool(chosen.get("cpu.poison"))
        native = tier.native_tier_program(lir, target.kernels, chosen, poison=poison)
        if native is not None:
            return native
        from rlx_cpu.numpy_program import numpy_program

        return numpy_program(lir, target.kernels, poison=poison)

    def build(self, lir: Lir, target: Target, options: Mapping[str, Any], objects: ObjectStore | None) -> Program:
        with tier.keeping(objects, options.get("options", {})):
            return self.compile(lir, target, options)

    def another(self, lir: Lir, target: Target, options: Mapping[str, Any], code: object) -> Program | None:
        return tier.another(lir, target.kernels, options.get("options", {}), code)

    def expect(self, options: Mapping[str, Any], objects: ObjectStore | None) -> None:
        with tier.keeping(objects, options):
            pass

    def levels(self, target: Target) -> tuple[Level, ...]:
        return tier.levels(target)

    def emit(
        self, lir: Lir, target: Target, options: Mapping[str, Any], level: str, steps: Sequence[int]
    ) -> Sequence[Listing]:
        return tier.listings(lir, target.kernels, options.get("options", {}), level, steps)

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
