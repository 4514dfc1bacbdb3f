"""Limits of the machine, as programs that are timed in the same rounds as the cases that they limit.

Nothing runs faster than multiply-adds on registers alone, or than a copy, so a product or a memory-bound kernel is compared
against these and not against a data sheet; and since they meet the same clock and the same neighbours, their ratio to a case
means something on a machine that others use.
"""

from __future__ import annotations

import ctypes
import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from attrs import frozen

from benchmarks.case import Program
from rlx_core.pipeline.compile import set_up
from rlx_core.pipeline.targets import find_target

LimitKind = Literal["peak", "copy"]

# Independent sums: more than latency times units on any processor, and fewer than its registers with AVX-512.
CHAINS = 24
ROUNDS = 40_000  # a fraction of a millisecond, about as long as the cases that are compared with it
COPIED = 1 << 23  # floats a thread copies: 32 MiB, beyond any cache


@frozen(eq=False)
class Limit:
    """What some threads can do at most: a program, and what one run of it amounts to."""

    name: str
    program: Program
    amount: float
    unit: str

    @property
    def rate(self) -> float:
        """Its best of a few runs, for the line above the table."""
        return self.amount / fastest(self.program.run)


@cache
def description() -> dict[str, str]:
    """The facts that a number depends on: the processor, and the instruction set or the device that rlx's code is made for."""
    plugins, configuration = set_up(None, None)
    _, backend, _ = find_target(plugins, configuration.target)
    target = backend.target_for(configuration.options)
    facts = {"processor": processor(), "isa": str(target.properties.get("isa", "none"))}
    if target.device is not None:
        facts["device"] = f"{target.device.name} {target.device.facts.name} ({target.device.facts.driver})"
    return facts


def processor() -> str:
    """The processor's name as the system reports it, with family and model, because clouds hide the details."""
    fields: dict[str, str] = {}
    with suppress(OSError):  # there is no such file outside Linux
        for row in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = row.partition(":")
            fields.setdefault(name.strip(), value.strip())
    named = fields.get("model name") or platform.processor() or platform.machine()
    return named + (f", family {fields['cpu family']} model {fields['model']}" if "cpu family" in fields else "")


def limit(kind: LimitKind, threads: int) -> Limit | None:
    """The limit of so many threads; `None` where it cannot be measured."""
    return peak(threads) if kind == "peak" else copy(threads)


@cache
def pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


def side_by_side(parts: Sequence[Callable[[], object]]) -> None:
    """Run every part on a separate thread, the first on this one."""
    others = [pool(len(parts) - 1).submit(part) for part in parts[1:]]
    parts[0]()
    for other in others:
        other.result()


def peak(threads: int, rounds: int = ROUNDS) -> Limit | None:
    """Multiply-adds in registers alone, float32; `None` where llvmlite is not installed."""
    loop = multiply_adds()
    if loop is None:
        return None
    function, flops_a_round, _ = loop
    out = [np.zeros(64, np.float32) for _ in range(threads)]
    parts = [partial(function, each.ctypes.data, rounds) for each in out]
    keep = (out, loop)  # the buffers and the code live as long as the program
    amount = 1e-9 * flops_a_round * rounds * threads
    return Limit("peak", Program(partial(side_by_side, parts), lambda: list(keep[0])), amount, "GFLOP/s")


def copy(threads: int) -> Limit:
    """NumPy copying, a part a thread: bytes read and bytes written."""
    parts = [partial(np.copyto, np.empty(COPIED, np.float32), np.ones(COPIED, np.float32)) for _ in range(threads)]
    return Limit("copy", Program(partial(side_by_side, parts), list), 2e-9 * 4 * COPIED * threads, "GB/s")


@cache
def multiply_adds() -> tuple[Callable[[int, int], None], float, Any] | None:
    """The loop as a function of a buffer and a number of rounds, the operations of a round, and what keeps it alive."""
    try:
        from llvmlite import binding
    except ImportError:
        return None
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    features = binding.get_host_cpu_features()
    lanes = 16 if features.get("avx512f") else 8 if features.get("avx2") else 4
    chains = CHAINS if lanes == 16 else 12
    target = binding.Target.from_default_triple()
    machine = target.create_target_machine(cpu=binding.get_host_cpu_name(), features=features.flatten(), opt=3)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(fma_loop(lanes, chains)), machine)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(engine.get_function_address("peak"))
    return function, 2.0 * lanes * chains, engine


def fma_loop(lanes: int, chains: int) -> str:
    """A loop of `chains` independent multiply-adds on vectors of `lanes` floats, as LLVM IR."""
    vector = f"<{lanes} x float>"
    lines = [
        f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
        "define void @peak(ptr %out, i64 %n) {",
    ]
    # Factors come from memory, so that nothing is known of them when the loop is compiled.
    lines += ["entry:", f"  %a = load {vector}, ptr %out, align 4", "  br label %loop", "loop:"]
    lines.append("  %i = phi i64 [ 0, %entry ], [ %next, %loop ]")
    lines += [f"  %s{c} = phi {vector} [ %a, %entry ], [ %t{c}, %loop ]" for c in range(chains)]
    lines += [
        f"  %t{c} = call {vector} @llvm.fma.v{lanes}f32({vector} %s{c}, {vector} %a, {vector} %a)"
        for c in range(chains)
    ]
    lines += [
        "  %next = add i64 %i, 1",
        "  %more = icmp slt i64 %next, %n",
        "  br i1 %more, label %loop, label %done",
        "done:",
    ]
    total = "%t0"
    for c in range(1, chains):
        lines.append(f"  %u{c} = fadd {vector} {total}, %t{c}")
        total = f"%u{c}"
    lines += [f"  store {vector} {total}, ptr %out, align 4", "  ret void", "}"]
    return "\n".join(lines)


def fastest(run: Callable[[], object], times: int = 7) -> float:
    """Seconds of the fastest of a few runs."""
    run()
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
