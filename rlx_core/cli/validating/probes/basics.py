"""The machine, the first kernel, copies and the sanitizer."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from typing import Final

import numpy as np
from attrs import asdict

import rlx_core as rlx
from rlx_core.cli.validating.bench import Bench, Skip, expect_same_bits
from rlx_core.cli.validating.results import Row

__all__ = ["copies", "first_kernel", "machine", "sanitizer"]

VARIABLES: Final = ("RLX_", "CUDA_", "HIP_", "ROCR_", "NVIDIA_")
"""How the environment variables of the report begin."""

SANITIZER: Final = "compute-sanitizer"
TOOLS: Final = ("memcheck", "racecheck", "synccheck")
SANITIZED: Final = "programs"
"""The step that runs under the sanitizer."""

SIZES: Final = (1, 3, 255, 4096, 4097, (1 << 20) + 7)
"""Bytes of copies."""


def machine(bench: Bench, _: str) -> Iterator[Row]:
    """Facts of the machine, the packages and the device."""
    packages = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    yield Row(
        "machine",
        "passed",
        f"{platform.machine()}, {platform.system()} {platform.release()}, Python {platform.python_version()}",
        {
            "processors": os.cpu_count(),
            "packages": packages,
            "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(VARIABLES)},
        },
    )
    facts = asdict(bench.device.facts)
    name, driver = bench.device.facts.name, bench.device.facts.driver
    yield Row("device", "passed", f"{name}; {driver}", {**facts, "devices": list(map(str, rlx.devices(bench.target)))})
    tool = shutil.which("nvidia-smi") or shutil.which("rocm-smi")
    if tool is not None:
        found = subprocess.run([tool], capture_output=True, text=True, check=False, timeout=20)
        yield Row("system tool", "passed", os.path.basename(tool), {"output": found.stdout})


def first_kernel(bench: Bench, _: str) -> Iterator[Row]:
    """Compile, load and run one kernel."""
    x = np.arange(-500, 500, dtype=np.float32)

    def run() -> str:
        start = time.perf_counter()
        found = np.asarray(bench.jit(lambda x: x * 2 + 1)(x))
        seconds = time.perf_counter() - start
        expect_same_bits([found], [x * 2 + 1], "x * 2 + 1")
        return f"{seconds:.2f} s with compilation"

    yield from bench.check("x * 2 + 1", run)


def copies(bench: Bench, _: str) -> Iterator[Row]:
    """Copy to the device, on it and back, at odd sizes and offsets."""
    rng = np.random.default_rng(5)
    for nbytes in SIZES:
        data = rng.integers(0, 256, nbytes, dtype=np.uint8)

        def run(data: np.ndarray = data) -> None:
            there = bench.put(data)
            expect_same_bits([there.to_host()], [data], "written and read")
            expect_same_bits([there.copy().to_host()], [data], "copied on the device")
            bench.put(data[::-1])
            expect_same_bits([there.to_host()], [data], "after another array was written")

        yield from bench.check(f"{nbytes} bytes", run)


def sanitizer(bench: Bench, _: str) -> Iterator[Row]:
    """Run programs under a sanitizer, if there is one."""
    tool = shutil.which(SANITIZER)
    if tool is None:
        yield Row(SANITIZER, "skipped", f"{SANITIZER} is not installed")
        return
    assert importlib.util.find_spec("rlx_core.cli.validating.child")
    for each in TOOLS:

        def run(each: str = each) -> None:
            folder = bench.folder / "sanitizer" / each
            folder.mkdir(parents=True)
            shutil.copy(bench.folder / "request.json", folder)
            child = [sys.executable, "-m", "rlx_core.cli.validating.child", str(folder), SANITIZED]
            try:
                done = subprocess.run(
                    [tool, "--tool", each, "--error-exitcode", "9", *child],
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=max(bench.deadline - time.monotonic(), 1),
                )
            except subprocess.TimeoutExpired:
                raise Skip("the step's time is used up") from None
            (folder / "output.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
            if done.returncode:
                raise AssertionError(f"{each} ended with {done.returncode}; see sanitizer/{each}/output.txt")

        yield from bench.check(each, run)
