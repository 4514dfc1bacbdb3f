"""What the machine can do, measured in the same run: the peak of its multiply-add units and its copy bandwidth.

Nothing runs faster than these, so a product or a memory-bound kernel is held against them and not against a data sheet.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import numpy as np

__all__ = ["copy_bandwidth", "fma_peak"]

CHAINS = (
    24  # independent sums: more than latency times units on any processor, and fewer than its registers with AVX-512
)
ROUNDS = 2_000_000


def fma_peak() -> float | None:
    """GFLOP/s of one core multiplying and adding in registers alone, float32; `None` where llvmlite is not installed."""
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
    module = binding.parse_assembly(fma_loop(lanes, chains))
    with binding.create_mcjit_compiler(module, machine) as engine:
        engine.finalize_object()
        out = np.zeros(64, np.float32)
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(engine.get_function_address("peak"))
        best = fastest(lambda: function(out.ctypes.data, ROUNDS))
    return 2e-9 * lanes * chains * ROUNDS / best


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


def copy_bandwidth() -> float:
    """GB/s of NumPy copying 256 MiB: bytes read and bytes written."""
    source = np.ones(1 << 26, np.float32)
    target = np.empty_like(source)
    return 2e-9 * source.nbytes / fastest(lambda: np.copyto(target, source))


def fastest(run: Callable[[], object], times: int = 5) -> float:
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
