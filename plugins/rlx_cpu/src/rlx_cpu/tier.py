"""Which tier serves this machine: native code if llvmlite is there and knows the processor, NumPy otherwise.

The one place that imports the native tier, so that without llvmlite nothing of it is touched, and the one that reads the
backend's options.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from rlx_core.errors import ConfigError, Fact
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import Program
from rlx_core.pipeline.kernels import KernelTable

if TYPE_CHECKING:
    from rlx_cpu.native.program import Settings
    from rlx_cpu.native.table import NativeTable

__all__ = ["native_program", "native_table", "properties", "reason_without", "settings"]


@cache
def reason_without() -> str | None:
    """Why there is no native tier here, or `None` if there is one."""
    if importlib.util.find_spec("llvmlite") is None:
        return "llvmlite is not installed"
    from rlx_cpu.native.isa import host_isa

    return None if host_isa() is not None else "no instruction set that native code is made for"


@cache
def native_table() -> NativeTable | None:
    """The native kernels, or `None` without a native tier."""
    if reason_without() is not None:
        return None
    from rlx_cpu.native.kernels import native

    return native


def properties() -> dict[str, str]:
    """What reports say of the tier, and what a compiled program depends on."""
    reason = reason_without()
    if reason is not None:
        return {"tier": "numpy", "why": reason}
    from rlx_cpu.native.isa import host_isa

    isa = host_isa()
    assert isa is not None, "a native tier has an instruction set"
    return {"tier": "native", "isa": isa.name}


def native_program(lir: Lir, kernels: KernelTable, options: Mapping[str, Any]) -> Program | None:
    """The program on the native tier, or `None` if there is none.

    Raises:
        ConfigError: An option has a value that cannot be.
    """
    chosen = settings(options)
    if chosen is None:
        return None
    from rlx_cpu.native.program import NativeProgram

    table = native_table()
    assert table is not None, "settings are of a native tier"
    return NativeProgram(lir, kernels, table, chosen)


def settings(options: Mapping[str, Any]) -> Settings | None:
    """The options of this backend, checked; `None` without a native tier.

    Raises:
        ConfigError: A number of threads below 0, a negative spin, an instruction set that this machine lacks.
    """
    threads, spin = options.get("cpu.threads", 0), options.get("cpu.spin", 200)
    if threads < 0:
        raise ConfigError(f"cpu.threads: must be at least 1, or 0 for all that there are, not {threads}")
    if spin < 0:
        raise ConfigError(f"cpu.spin: must be at least 0 microseconds, not {spin}")
    wanted = options.get("cpu.isa", "auto")
    reason = reason_without()
    if reason is not None:
        if wanted != "auto":
            raise ConfigError(f"cpu.isa: {wanted} needs native code, and there is none", Fact("because", reason))
        return None
    from rlx_cpu.native.isa import named
    from rlx_cpu.native.program import Settings
    from rlx_cpu.native.threads import usable_cpus

    return Settings(named(wanted), threads or usable_cpus(), spin)
