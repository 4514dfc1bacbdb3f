"""The plugin's entry point: its contributions, without heavy imports or calls of a driver."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from rlx_core.contributions import BackendSpec, LegalizationSpec, OptionSpec
from rlx_core.hooks import hookimpl

DRIVERS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
"""Folders in which Vulkan drivers register on Linux."""

LOADERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
"""Folders that may contain the Vulkan loader, the library that enumerates drivers."""

INSTALL_WGPU = "python -m pip install wgpu"

OLDEST = "0.30"
"""The minimum supported version of wgpu."""

INSTALL = "apt-get install mesa-vulkan-drivers (other systems: the GPU's own driver and libvulkan)"


@hookimpl
def rlx_availability() -> str | None:
    """Return the missing dependency as far as files show it; adapters are enumerated only when one is used."""
    if importlib.util.find_spec("wgpu") is None:
        return f"wgpu is not installed ({INSTALL_WGPU})"
    if not sys.platform.startswith("linux"):
        return None  # Metal and Direct3D 12 are parts of their systems
    if not has_loader():
        return f"there is no Vulkan loader (libvulkan.so.1): {INSTALL}"
    if not has_driver():
        return f"no Vulkan driver is installed: {INSTALL}"
    return None


def has_loader() -> bool:
    """Return whether the Vulkan loader is installed."""
    configured = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return any(Path(folder, "libvulkan.so.1").exists() for folder in (*LOADERS, *configured) if folder)


def has_driver() -> bool:
    """Return whether a Vulkan driver is registered."""
    if any(os.environ.get(name) for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES")):
        return True
    return any(next(Path(folder).glob("*.json"), None) is not None for folder in DRIVERS)


@hookimpl
def rlx_backends() -> list[BackendSpec]:
    return [
        BackendSpec(
            "wgpu",
            load="rlx_wgpu.backend:WgpuBackend",
            summary="GPUs by WebGPU; a driver in software only if wgpu.allow-cpu says so.",
        )
    ]


@hookimpl
def rlx_legalizations() -> list[LegalizationSpec]:
    return [LegalizationSpec("wgpu", "wgpu.complex_parts", "rlx_core.emit.complex_parts:complex_parts")]


@hookimpl
def rlx_options() -> list[OptionSpec]:
    return [
        OptionSpec(
            "wgpu.allow-cpu",
            bool,
            False,
            doc="Whether an adapter that is a processor may be used: for tests, and where there is no GPU.",
            env="RLX_WGPU_ALLOW_CPU",
        ),
        OptionSpec(
            "wgpu.device",
            str,
            "",
            doc="Part of an adapter's or a driver's name: only such adapters are used, software ones among them.",
            env="RLX_WGPU_DEVICE",
        ),
        OptionSpec(
            "wgpu.poison",
            bool,
            False,
            doc="Run step by step with memory that nobody may read full of NaN, to find kernels that stray: slow.",
            env="RLX_WGPU_POISON",
        ),
    ]
