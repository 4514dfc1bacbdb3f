"""The plugin's entry point: its contributions, without heavy imports or calls of a driver."""

from __future__ import annotations

import importlib.util
import os
import sys

from rlx_core.contributions import BackendSpec, LegalizationSpec, OptionSpec
from rlx_core.hooks import hookimpl

STAND_IN = "RLX_METAL_STAND_IN"
"""The environment variable that selects the host CPU as a stand-in for a GPU."""

INSTALL = "python -m pip install pyobjc-framework-Metal"

INSTEAD = f"{STAND_IN}=1 runs its kernels on this machine's processor, for tests"


@hookimpl
def rlx_availability() -> str | None:
    """Return the missing dependency as far as the system shows it; devices are enumerated only when one is used."""
    if stands_in():
        return None
    system: str = sys.platform
    if system != "darwin":
        return f"Metal is a part of macOS, and this is {system} ({INSTEAD})"
    if importlib.util.find_spec("Metal") is None:
        return f"PyObjC's Metal is not installed ({INSTALL})"
    return None


def stands_in() -> bool:
    """Return whether the environment variable `STAND_IN` selects the stand-in."""
    return os.environ.get(STAND_IN, "") in ("1", "true")


@hookimpl
def rlx_backends() -> list[BackendSpec]:
    return [
        BackendSpec(
            "metal",
            load="rlx_metal.backend:MetalBackend",
            summary="GPUs by Metal, on macOS; this machine's processor only if metal.stand-in says so.",
        )
    ]


@hookimpl
def rlx_legalizations() -> list[LegalizationSpec]:
    return [LegalizationSpec("metal", "metal.complex_parts", "rlx_core.emit.complex_parts:complex_parts")]


@hookimpl
def rlx_options() -> list[OptionSpec]:
    return [
        OptionSpec(
            "metal.stand-in",
            bool,
            False,
            doc="Whether the processor of a Linux machine stands in for a GPU, by a C++ compiler: for tests. Where there is no "
            "Metal the variable has to say so, because the plugin is unavailable without it.",
            env=STAND_IN,
        ),
        OptionSpec(
            "metal.poison",
            bool,
            False,
            doc="Run step by step with memory that nobody may read full of NaN, to find kernels that stray: slow.",
            env="RLX_METAL_POISON",
        ),
    ]
