"""Selection of the tier: native code if llvmlite is installed and supports the processor, NumPy otherwise.

The one place that reads the backend's options; without llvmlite it imports nothing of the native tier.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from rlx_core.errors import ConfigError, Fact, nearest
from rlx_core.errors.lacks import is_lack, lacking
from rlx_core.ir.lir import Lir
from rlx_core.system.records import evolve

if TYPE_CHECKING:
    from rlx_core.tuning.tuner import Tuner
    from rlx_cpu.native.llvm.isa import Isa
    from rlx_cpu.native.runtime.compiled import Settings

TIERS = ("auto", "native", "numpy")

TUNE_MODES: Final = ("off", "stored", "measure")
"""The modes of tuning (`rlx_core.tuning`)."""


@cache
def reason_without() -> str | None:
    """Return why there is no native tier here, or `None` if there is one."""
    if importlib.util.find_spec("llvmlite") is None:
        return "llvmlite is not installed"
    try:
        from rlx_cpu.native.llvm.isa import host_isa

        isa = host_isa()
    except OSError as error:  # llvmlite's own, about its library
        if is_lack(error):
            raise lacking("cpu: LLVM", error) from error
        return f"llvmlite's library cannot be loaded ({error.__context__ or error})"

    return None if isa is not None else NO_ISA


NO_ISA: Final = "this processor has no instruction set that native code is made for"


@cache
def warn_of_numpy() -> None:
    """Say once that programs run with NumPy because of the processor: results are the same, and everything is slower."""
    from rlx_cpu.native.llvm.isa import ISAS, this_host

    warnings.warn(
        f"cpu: {NO_ISA}: {this_host()} has none of {', '.join(isa.name for isa in ISAS)}. Programs run with NumPy, which is "
        "slower; the option cpu.tier=numpy asks for that without this warning.",
        RuntimeWarning,
        stacklevel=2,
    )


def is_native(options: Mapping[str, Any]) -> bool:
    """Return whether programs with these options are native.

    Raises:
        ConfigError: The requested tier does not exist, or is not available.
    """
    requested, reason = options.get("cpu.tier", "auto"), reason_without()
    if requested not in TIERS:
        raise ConfigError(f"cpu.tier: {requested!r} is none of {', '.join(TIERS)}", hint=nearest(requested, TIERS))
    if requested == "native" and reason is not None:
        raise ConfigError("cpu.tier: native was asked for and is not here", Fact("because", reason))
    if requested == "auto" and reason == NO_ISA:
        warn_of_numpy()
    return requested != "numpy" and reason is None


def tiers(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The tiers that programs under these options use, best first."""
    return ("native", "library", "numpy") if is_native(options) else ("numpy",)


def properties(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of the tier for reports, on which a compiled program depends."""
    isa = isa_of(options)
    if isa is not None:
        tuner = tuner_of(options, isa)
        tuned = {} if tuner is None else {"tuning": f"{tuner.machine}: {tuner.state}"}
        dots = {"dots": " ".join(isa.dots)} if isa.dots else {}
        return {"tier": "native", "isa": isa.name, **dots, **tuned}
    return {"tier": "numpy", "why": reason_without() or "cpu.tier is numpy"}


def settings_of(template: Lir, options: Mapping[str, Any]) -> Settings | None:
    """The settings of a template's programs, read once for all sizes except for the number of usable CPUs, which may change."""
    cached = _settings.get(template)
    if cached is None or cached[0] != options:
        cached = _settings[template] = dict(options), settings(options)
    result = cached[1]
    if result is None:
        return None
    threads = threads_of(options)
    return result if result.threads == threads else evolve(result, threads=threads)


_settings: WeakKeyDictionary[Lir, tuple[Mapping[str, Any], Settings | None]] = WeakKeyDictionary()


def settings(options: Mapping[str, Any]) -> Settings | None:
    """The options of this backend, checked; `None` on the NumPy tier.

    Raises:
        ConfigError: As `isa_of`.
    """
    isa = isa_of(options)
    if isa is None:
        return None
    from rlx_cpu.native.runtime.compiled import Settings

    tuner = tuner_of(options, isa)
    if tuner is None:
        return Settings(threads_of(options), spin_of(options), isa=isa)
    from rlx_cpu.native.tuning import NativeTuning

    return Settings(threads_of(options), spin_of(options), isa=isa, tuning=NativeTuning(tuner))


def threads_of(options: Mapping[str, Any]) -> int:
    """Return how many threads run native code: the option's value, else one for every usable CPU.

    Raises:
        ConfigError: The number is less than one, or more than the maximum number of parts of a step.
    """
    from rlx_cpu.native.contract import MOST_PARTS
    from rlx_cpu.native.threads import usable_cpus

    threads: int | None = options.get("cpu.threads")
    if threads is None:
        return min(usable_cpus(), MOST_PARTS)
    if threads < 1:
        raise ConfigError(f"cpu.threads: must be at least 1, not {threads}", hint="leave it out for every usable CPU")
    if threads > MOST_PARTS:
        raise ConfigError(f"cpu.threads: must be at most {MOST_PARTS}, not {threads}")
    return threads


def isa_of(options: Mapping[str, Any]) -> Isa | None:
    """Return the target of native code, with all options checked; `None` on the NumPy tier. CPUs and quotas are not queried.

    Raises:
        ConfigError: A number of threads below 1 or above the maximum number of parts of a step, a negative spin, a tier or an
            instruction set that this machine does not support, a mode of tuning that does not exist.
    """
    if options.get("cpu.threads") is not None:
        threads_of(options)
    spin_of(options)
    mode = tune_of(options)
    requested = options.get("cpu.isa", "auto")
    if not is_native(options):
        for name, value, default in (("isa", requested, "auto"), ("tune", mode, "off")):
            if value != default:
                reason = Fact("because", reason_without() or "cpu.tier is numpy")
                raise ConfigError(f"cpu.{name}: {value} needs native code, and there is none", reason)
        return None
    from rlx_cpu.native.llvm.isa import named

    return named(requested)


def spin_of(options: Mapping[str, Any]) -> int:
    """Microseconds that a waiting thread spins.

    Raises:
        ConfigError: It is negative.
    """
    spin: int = options.get("cpu.spin", 200)
    if spin < 0:
        raise ConfigError(f"cpu.spin: must be at least 0 microseconds, not {spin}")
    return spin


def tune_of(options: Mapping[str, Any]) -> str:
    """Return the mode of tuning.

    Raises:
        ConfigError: There is no such mode.
    """
    mode: str = options.get("cpu.tune", "off")
    if mode not in TUNE_MODES:
        raise ConfigError(f"cpu.tune: {mode!r} is none of {', '.join(TUNE_MODES)}", hint=nearest(mode, TUNE_MODES))
    return mode


def tuner_of(options: Mapping[str, Any], isa: Isa) -> Tuner | None:
    """Return the tuner of native code; `None` if tuning is off."""
    mode = tune_of(options)
    if mode == "off":
        return None
    from rlx_core.tuning.store import default_store
    from rlx_core.tuning.tuner import Tuner

    return Tuner(machine_line(isa, threads_of(options)), default_store(), measures=mode == "measure")


def machine_line(isa: Isa, threads: int) -> str:
    """Return the machine's one-line form: everything but the problem that the time of a schedule depends on."""
    from rlx_cpu.native.llvm.isa import this_host
    from rlx_cpu.native.machine import MACHINE

    sizes = "" if isa.machine == MACHINE else f", sizes {sha256(repr(isa.machine).encode()).hexdigest()[:12]}"
    return f"cpu {this_host()}, {isa.name}, {threads} {'thread' if threads == 1 else 'threads'}{sizes}"
