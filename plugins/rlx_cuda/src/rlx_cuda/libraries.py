"""Where NVIDIA's libraries of C lie: in wheels, in a toolkit, or wherever the system finds them."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["paths_of"]


def paths_of(name: str, packages: tuple[str, str]) -> Iterator[str]:
    """Where a library may lie, best first.

    Args:
        name: Of its file, without what systems add: `nvrtc`.
        packages: The wheels that hold it, of CUDA 13 and of CUDA 12: CuPy's extra `ctk` brings the one of its CUDA.
    """
    # That of CuPy's own CUDA first: a driver of CUDA 12 does not load what NVRTC 13 makes, which stays installed when somebody
    # replaces CuPy.
    for package in packages[::-1] if _is_installed("cupy-cuda12x") else packages:
        try:
            files = importlib.metadata.files(package) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        yield from (str(f.locate()) for f in files if re.match(rf"(lib)?{name}(64_[\d_]+|\.so\.\d+)?(\.dll)?$", f.name))
    toolkit = os.environ.get("CUDA_PATH", os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    yield from sorted(map(str, Path(toolkit).glob(f"lib64/lib{name}.so.1?")), reverse=True)
    if not sys.platform.startswith("win"):
        yield from (f"lib{name}.so.13", f"lib{name}.so.12")


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
