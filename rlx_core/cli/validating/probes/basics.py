"""The machine, the first kernel, copies and the sanitizer."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any, Final

import numpy as np
from attrs import asdict

import rlx_core as rlx
from rlx_core.cli.validating.bench import Bench, Skip, expect_same_bits
from rlx_core.cli.validating.results import CheckRow

VARIABLES: Final = "RLX_"
"""The prefix of rlx's own environment variables; the backend states the vendor's."""

TOOL_SECONDS: Final = 10
SANITIZED: Final = "programs"
"""The step that runs under the sanitizer."""

SIZES: Final = (1, 3, 255, 4096, 4097, (1 << 20) + 7)
"""Bytes of copies."""


def machine(bench: Bench, _: str) -> Iterator[CheckRow]:
    """Facts of the machine, the packages and the device."""
    prefixes = (VARIABLES, *bench.diagnostics.variables)
    packages = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    yield CheckRow(
        "machine",
        "passed",
        f"{platform.machine()}, {platform.system()} {platform.release()}, Python {platform.python_version()}",
        {
            "processors": os.cpu_count(),
            "packages": packages,
            "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(prefixes)},
        },
    )
    facts = asdict(bench.device.facts)
    name, driver = bench.device.facts.name, bench.device.facts.driver
    yield CheckRow(
        "device", "passed", f"{name}; {driver}", {**facts, "devices": list(map(str, rlx.devices(bench.target)))}
    )
    for command in bench.diagnostics.tools:
        yield from bench.check(command[0], output_of, command)


def output_of(command: Sequence[str]) -> dict[str, Any]:
    """Return the output of a system tool.

    Raises:
        Skip: The tool is not installed, or takes too long.
        AssertionError: The tool ends with an error.
    """
    if shutil.which(command[0]) is None:
        raise Skip("not installed")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_SECONDS)
    except subprocess.TimeoutExpired:
        raise Skip(f"prints nothing within {TOOL_SECONDS} s") from None
    if done.returncode:
        raise AssertionError(f"{command[0]} ended with {done.returncode}: {done.stderr or done.stdout}")
    return {"output": done.stdout}


def first_kernel(bench: Bench, _: str) -> Iterator[CheckRow]:
    """Compile, load and run one kernel."""
    x = np.arange(-500, 500, dtype=np.float32)

    def run() -> str:
        start = time.perf_counter()
        result = np.asarray(bench.jit(lambda x: x * 2 + 1)(x))
        seconds = time.perf_counter() - start
        expect_same_bits([result], [x * 2 + 1], "x * 2 + 1")
        return f"{seconds:.2f} s with compilation"

    yield from bench.check("x * 2 + 1", run)


def copies(bench: Bench, _: str) -> Iterator[CheckRow]:
    """Copy to the device, on it and back, at odd sizes and offsets."""
    rng = np.random.default_rng(5)

    def run(data: np.ndarray) -> None:
        on_device = bench.put(data)
        expect_same_bits([on_device.to_host()], [data], "written and read")
        expect_same_bits([on_device.copy().to_host()], [data], "copied on the device")
        bench.put(data[::-1])
        expect_same_bits([on_device.to_host()], [data], "after another array was written")

    for nbytes in SIZES:
        yield from bench.check(f"{nbytes} bytes", run, rng.integers(0, 256, nbytes, dtype=np.uint8))


def sanitizer(bench: Bench, _: str) -> Iterator[CheckRow]:
    """Run programs under each tool of the vendor's sanitizer, if it is installed."""
    vendor = bench.diagnostics.sanitizer
    if vendor is None:
        yield CheckRow("sanitizer", "skipped", f"the backend of {bench.target} states no sanitizer")
        return
    command = shutil.which(vendor.command)
    if command is None:
        yield CheckRow(vendor.command, "skipped", f"{vendor.command} is not installed")
        return
    arguments = [command, *vendor.arguments]
    assert importlib.util.find_spec("rlx_core.cli.validating.child")

    def run(tool: str) -> None:
        folder = bench.folder / "sanitizer" / tool
        folder.mkdir(parents=True)
        shutil.copy(bench.folder / "request.json", folder)
        child = [sys.executable, "-m", "rlx_core.cli.validating.child", str(folder), SANITIZED]
        try:
            done = subprocess.run(
                [*(word.format(tool=tool) for word in arguments), *child],
                capture_output=True,
                text=True,
                check=False,
                timeout=max(bench.deadline - time.monotonic(), 1),
            )
        except subprocess.TimeoutExpired:
            raise Skip("the step's time is used up") from None
        (folder / "output.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode:
            raise AssertionError(f"{tool} ended with {done.returncode}; see sanitizer/{tool}/output.txt")

    for tool in vendor.tools:
        yield from bench.check(tool, run, tool)
