"""HIPRTC, AMD's run-time compiler for HIP: a library of ROCm that is not available as a wheel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rlx_gpu.codegen.cuda import HIP
from rlx_gpu.runtime_compiler import RuntimeCompiler


def compiled(source: str, architecture: str, place: str = "rocm") -> bytes:
    """Compile a source to a code object for one architecture, for example `gfx942:sramecc+:xnack-`.

    Raises:
        KernelBuildError: HIPRTC rejects the source or the architecture.
        DeviceUnavailableError: HIPRTC is not installed.
    """
    options = (f"--gpu-architecture={architecture}", "-w", *HIP.options)
    code, _log = HIPRTC.compiled(source, architecture, options, "Code", place)
    return code


def _paths() -> Iterator[str]:
    """Yield candidate paths: of the ROCm that an environment variable names, of `/opt/rocm`, then names on the search path."""
    for root in (os.environ.get("ROCM_PATH", ""), os.environ.get("ROCM_HOME", ""), "/opt/rocm"):
        if root:
            yield from sorted(map(str, Path(root).glob("lib/libhiprtc.so.?")), reverse=True)
    yield from ("libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so")


HIPRTC: Final = RuntimeCompiler(
    name="HIPRTC",
    language="HIP",
    target="rocm",
    level="hip",
    prefix="hiprtc",
    file="rlx.hip",
    install="install ROCm (package hip-runtime-amd)",
    paths=_paths,
)
