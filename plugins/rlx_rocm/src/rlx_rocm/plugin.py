"""The plugin's entry point: its contributions, without heavy imports or calls of a driver."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from rlx_core.contributions import BackendSpec, LegalizationSpec, OptionSpec
from rlx_core.hooks import hookimpl

INSTALL_OPENCL = "python -m pip install pyopencl"

OLDEST = "2024.1"
"""The minimum supported version of PyOpenCL."""

INSTALL_CUPY = 'python -m pip install "rlx-rocm[cupy]", and ROCm 7 with its libraries'

STAND_IN = "RLX_ROCM_STAND_IN"
"""The environment variable of `rocm.stand-in`, which makes the target usable without a library and without a driver."""

KERNEL_DRIVER = "/dev/kfd"
"""A file that exists on Linux if AMD's driver is loaded: CuPy requires only this driver and ROCm's libraries."""

VENDORS = ("/etc/OpenCL/vendors", "/opt/rocm/etc/OpenCL/vendors")
"""Folders in which OpenCL drivers register on Linux."""


@hookimpl
def rlx_availability() -> str | None:
    """Return the missing dependency as far as files show it; devices are enumerated only when one is used."""
    if os.environ.get(STAND_IN, "") in ("1", "true"):
        return None
    if has_cupy():
        return None
    if importlib.util.find_spec("pyopencl") is None:
        return f"pyopencl is not installed ({INSTALL_OPENCL})"
    if not has_driver():
        return (
            "no OpenCL driver is installed: AMD's comes with ROCm (package rocm-opencl-runtime); "
            'python -m pip install "pyopencl[pocl]" brings one for this machine\'s processor'
        )
    return None


def has_cupy() -> bool:
    """Return whether CuPy is installed and AMD's driver is loaded; the kind of CuPy build is checked when it is used."""
    return importlib.util.find_spec("cupy") is not None and os.path.exists(KERNEL_DRIVER)


def has_driver() -> bool:
    """Return whether an OpenCL driver is registered; always true on other systems than Linux, where no file shows it."""
    if not sys.platform.startswith("linux"):
        return True
    if any(os.environ.get(name) for name in ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH")):
        return True
    if importlib.util.find_spec("pocl_binary_distribution") is not None:
        return True
    return any(next(Path(folder).glob("*.icd"), None) is not None for folder in VENDORS)


@hookimpl
def rlx_backends() -> list[BackendSpec]:
    return [
        BackendSpec(
            "rocm",
            load="rlx_rocm.backend:RocmBackend",
            summary="AMD's GPUs by OpenCL or CuPy, others by OpenCL; a processor only if rocm.allow-cpu says so.",
        )
    ]


@hookimpl
def rlx_legalizations() -> list[LegalizationSpec]:
    return [LegalizationSpec("rocm", "rocm.complex_parts", "rlx_core.emit.complex_parts:complex_parts")]


@hookimpl
def rlx_options() -> list[OptionSpec]:
    return [
        OptionSpec(
            "rocm.allow-cpu",
            bool,
            False,
            doc="Whether an OpenCL device that is a processor may be used: for tests, and where there is no GPU.",
            env="RLX_ROCM_ALLOW_CPU",
        ),
        OptionSpec(
            "rocm.device",
            str,
            "",
            doc="Part of a device's or a platform's name: only such devices are used, a processor among them.",
            env="RLX_ROCM_DEVICE",
        ),
        OptionSpec(
            "rocm.driver",
            str,
            "auto",
            doc="The driver of devices: opencl, cupy (its build for ROCm), or auto: OpenCL, and CuPy if OpenCL has no device.",
            env="RLX_ROCM_DRIVER",
            former=("rocm.road",),
        ),
        OptionSpec(
            "rocm.poison",
            bool,
            False,
            doc="Run step by step with memory that nobody may read full of NaN, to find kernels that stray: slow.",
            env="RLX_ROCM_POISON",
        ),
        OptionSpec(
            "rocm.stand-in",
            bool,
            False,
            doc="Whether this machine's CPU runs the kernels of the CuPy driver, HIP compiled as C++: for tests.",
            env=STAND_IN,
        ),
    ]
