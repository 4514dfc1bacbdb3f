"""Overheads of a program on an OpenCL device, and the bandwidth of its kernels: `python -m benchmarks.opencl`.

The device is the target `rocm`'s first one: PoCL is informative about overheads and the shape of kernels, and not about a
GPU. Times are the host's clock: of calls without synchronisation, and of calls with it, compared with a copy kernel in the
same rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import rlx_core as rlx
from benchmarks.first_call import seconds_of
from rlx_core import nn
from rlx_core.device.driver import At
from rlx_core.errors import RlxError

COPY: Final = """
__kernel void copy_16(__global uchar* to, ulong to_byte, __global const uchar* from, ulong from_byte) {
  const ulong at = 16 * get_global_id(0);
  *(__global uint4*)(to + to_byte + at) = *(__global const uint4*)(from + from_byte + at);
}
"""
"""A copy kernel of 16 bytes a thread, with which memory-bound kernels are compared."""

GROUP: Final = 256


def steps_of(count: int) -> Callable[..., Any]:
    """A jitted program of as many launches: a row's sum is needed before any later operation."""

    def program(x: Any) -> Any:
        for number in range(count):
            x = rlx.sum(x, axis=number % 2, keepdims=True) * 0.1 + rlx.stop_gradient(x)
        return x

    return rlx.jit(program, target="rocm", outputs="device")


def launches_of(program: Any) -> int:
    return len(program.executables[0].lir.steps)


def host_seconds(calls: Sequence[Callable[[], Any]], rounds: int) -> list[list[float]]:
    """Of each call, in turns, the host's seconds until it returns; the wait for its work is not timed."""
    samples_of_calls: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, samples in zip(calls, samples_of_calls, strict=True):
            start = time.perf_counter()
            result = call()
            samples.append(time.perf_counter() - start)
            result.device.synchronize()
    return samples_of_calls


def print_overheads(rounds: int) -> None:
    x = rlx.device_put(np.ones((8, 8), np.float32), "rocm")
    programs = [steps_of(count) for count in (1, 50, 100)]
    for program in programs:
        program(x).to_host()
    one, half, full = host_seconds([lambda p=p: p(x) for p in programs], rounds)
    counts = [launches_of(p) for p in programs]
    print(f"host's time of a call that nobody waits for, {rounds} rounds in turns: median (least), us")
    for count, samples in zip(counts, (one, half, full), strict=True):
        print(f"  {count:4} steps {1e6 * statistics.median(samples):9.1f} ({1e6 * min(samples):.1f})")
    for name, statistic in (("median", statistics.median), ("least", min)):
        print(
            f"  a launch, by the {name}s: {1e6 * (statistic(full) - statistic(half)) / (counts[2] - counts[1]):.2f} (goal 12)"
        )
    print(f"  goal for 100 steps: 1200 beyond their kernels; {counts[2]} steps are {1e6 * statistics.median(full):.0f}")


FIRST: Final = """
import time, numpy as np, rlx_core as rlx
from rlx_core import nn
rng = np.random.default_rng(0)
w = {n: rng.standard_normal((64, 64), np.float32) / 8 for n in "qkvo"}
x = rng.standard_normal((2, 32, 64), np.float32)

def loss(w, x):
    y = x + nn.attention(x @ w["q"], x @ w["k"], x @ w["v"], num_heads=4, is_causal=True) @ w["o"]
    return rlx.mean(rlx.square(nn.gelu(nn.layer_norm(y, w["q"][0], w["k"][0]))))

rlx.device_put(x, "rocm")
start = time.perf_counter()
rlx.jit(rlx.value_and_grad(loss), target="rocm")(w, x)
print(time.perf_counter() - start)
"""
"""The first call of a step of training, from when packages are imported and the device is open."""


def print_first_calls() -> None:
    first, second = seconds_of(FIRST)
    print(f"first call: {first:.2f} s, in a second process {second:.2f} s: {second / first:.2f} of it (goal 0.3)")


def walks(elements: int) -> dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], int]]:
    """By name, the program, the shapes of its arrays, and how many times it passes over the first array's bytes."""
    flat = (elements,)
    programs: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], int]] = {
        "x * 2 + 1": (lambda x: x * 2 + 1, (flat,), 2),
        "a * b + c": (lambda a, b, c: a * b + c, (flat,) * 3, 4),
        "relu": (nn.relu, (flat,), 2),
    }
    for width in (512, 1024, 4096):
        rows, w = (elements // width, width), (width,)
        programs[f"layer norm, rows of {width}"] = (nn.layer_norm, (rows, w, w), 2)
        programs[f"RMS norm, rows of {width}"] = (lambda x, w: nn.rms_norm(x, w, eps=1e-6), (rows, w), 2)
        programs[f"softmax, rows of {width}"] = (nn.softmax, (rows,), 2)
    return programs


def print_bandwidths(elements: int, rounds: int) -> None:
    rng = np.random.default_rng(0)
    source, target = (rlx.device_put(rng.standard_normal(elements, np.float32), "rocm") for _ in range(2))
    driver, nbytes = source.device.driver, 4 * elements
    ends = [At(each.block.buffer, each.offset) for each in (target, source)]
    copy = driver.launch(driver.build(COPY), "copy_16", nbytes // 16 // GROUP, GROUP, ends)

    def copied() -> None:
        driver.submit([copy])
        driver.synchronize()

    print(
        f"GB/s on arrays of {nbytes >> 20} MiB beside a copy kernel, {rounds} rounds in turns: medians (most), goal 0.60"
    )
    for name, (function, shapes, passes) in walks(elements).items():
        arrays = [rlx.device_put(rng.standard_normal(shape, np.float32), "rocm") for shape in shapes]
        program = rlx.jit(function, target="rocm", outputs="device")

        def called(program: Any = program, arrays: Any = arrays) -> None:
            program(*arrays).device.synchronize()

        rates: list[list[float]] = [[], []]
        called()
        for _ in range(rounds):
            for call, moved, samples in ((copied, 2, rates[0]), (called, passes, rates[1])):
                start = time.perf_counter()
                call()
                samples.append(1e-9 * moved * nbytes / (time.perf_counter() - start))
        plain, ours = (statistics.median(each) for each in rates)
        print(
            f"  {name:28} {ours:6.2f} ({max(rates[1]):.2f})  copy {plain:6.2f} ({max(rates[0]):.2f})  {ours / plain:.2f}"
        )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.opencl", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--elements", type=int, default=8 << 20, help="of an array, a multiple of 4096")
    arguments = parser.parse_args(words)
    try:
        (device, *_) = rlx.devices("rocm")
    except RlxError as error:
        print(f"nothing was timed: {error}")
        return 2
    print(repr(device))
    print_overheads(arguments.rounds)
    print_bandwidths(arguments.elements, arguments.rounds)
    print_first_calls()
    return 0


if __name__ == "__main__":
    sys.exit(main())
