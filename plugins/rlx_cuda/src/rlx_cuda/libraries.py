"""Paths of NVIDIA's C libraries: in wheels, in a toolkit, or on the system's search path."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from rlx_core.device.libraries import installed_version


def paths_of(name: str, packages: tuple[str, str]) -> Iterator[str]:
    """Yield candidate paths of a library, best first.

    Args:
        name: The file's base name without prefixes and suffixes of the system: `nvrtc`.
        packages: The wheels that contain it, for CUDA 13 and for CUDA 12: CuPy's extra `ctk` installs the one of its CUDA.
    """
    # The wheel of CuPy's CUDA version comes first: a CUDA 12 driver does not load code of NVRTC 13, whose wheel stays installed
    # if the user replaces CuPy.
    for package in packages[::-1] if installed_version("cupy-cuda12x") else packages:
        try:
            files = importlib.metadata.files(package) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        yield from (str(f.locate()) for f in files if re.match(rf"(lib)?{name}(64_[\d_]+|\.so\.\d+)?(\.dll)?$", f.name))
    toolkit = os.environ.get("CUDA_PATH", os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    yield from sorted(map(str, Path(toolkit).glob(f"lib64/lib{name}.so.1?")), reverse=True)
    if not sys.platform.startswith("win"):
        yield from (f"lib{name}.so.13", f"lib{name}.so.12")
