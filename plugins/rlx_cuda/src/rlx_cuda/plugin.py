"""The plugin's entry point: its contributions, without heavy imports or calls of a driver."""

from __future__ import annotations

import importlib.util
import os
import sys

from rlx_core.contributions import BackendSpec, LegalizationSpec, OptionSpec, Trial
from rlx_core.hooks import hookimpl

DRIVERS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")
"""Files that exist on Linux and on WSL if NVIDIA's driver is loaded."""

INSTALL = 'python -m pip install "cupy-cuda13x[ctk]"; with a driver older than 580: "cupy-cuda12x[ctk]"'

STAND_IN = "RLX_CUDA_STAND_IN"
"""The environment variable of `cuda.stand-in`, which makes the target usable without CuPy and without a driver."""


@hookimpl
def rlx_availability() -> str | None:
    """Return the missing dependency as far as files show it; devices are enumerated only when one is used."""
    if os.environ.get(STAND_IN, "") in ("1", "true"):
        return None
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed ({INSTALL})"
    if not has_driver():
        return "NVIDIA's driver is not loaded: install it (package nvidia-driver, 580 or newer), or look at nvidia-smi"
    return None


def has_driver() -> bool:
    """Return whether NVIDIA's driver is loaded; always true on other systems than Linux, where no file shows it."""
    return not sys.platform.startswith("linux") or any(os.path.exists(each) for each in DRIVERS)


@hookimpl
def rlx_backends() -> list[BackendSpec]:
    return [BackendSpec("cuda", load="rlx_cuda.backend:CudaBackend", summary="NVIDIA's GPUs by CuPy and NVRTC.")]


@hookimpl
def rlx_legalizations() -> list[LegalizationSpec]:
    return [LegalizationSpec("cuda", "cuda.complex_parts", "rlx_core.emit.complex_parts:complex_parts")]


@hookimpl
def rlx_options() -> list[OptionSpec]:
    return [
        OptionSpec(
            "cuda.arch",
            str,
            "",
            doc="The architecture that --emit ptx and --emit cubin compile for (sm_90); by default the device's own.",
            env="RLX_CUDA_ARCH",
        ),
        OptionSpec(
            "cuda.device",
            str,
            "",
            doc="Part of a device's name: only such devices are used.",
            env="RLX_CUDA_DEVICE",
        ),
        OptionSpec(
            "cuda.poison",
            bool,
            False,
            doc="Run step by step with memory that nobody may read full of NaN, to find kernels that stray: slow.",
            env="RLX_CUDA_POISON",
        ),
        OptionSpec(
            "cuda.products",
            str,
            "generated",
            doc="Who multiplies matrices: generated (kernels of rlx), or library (cuBLASLt, with what follows if it has that).",
            env="RLX_CUDA_PRODUCTS",
            trials=(Trial("library", is_library=True),),
        ),
        OptionSpec(
            "cuda.stand-in",
            bool,
            False,
            doc="Whether this machine's processor runs the kernels, compiled as C++: for tests, and where there is no GPU.",
            env=STAND_IN,
        ),
        OptionSpec(
            "cuda.tf32",
            bool,
            False,
            doc="Whether tensor cores multiply f32, rounded to TF32 (ten bits of mantissa), in products and attention.",
            env="RLX_CUDA_TF32",
            trials=(Trial(True, dtypes=("f32",), epsilon=2.0**-10),),
        ),
        OptionSpec(
            "cuda.wgmma",
            bool,
            False,
            doc="Whether warpgroups multiply f16 and bf16 (wgmma, sm_90a) where sizes pay; nobody has measured it yet.",
            env="RLX_CUDA_WGMMA",
            trials=(Trial(True, dtypes=("f16", "bf16")),),
        ),
    ]
