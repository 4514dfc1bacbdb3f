"""Kernels to print, machines that reach every walk with small ones, their data, and whether results agree."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from rlx_core.codegen.faults import fault_of
from rlx_core.codegen.loops import Bound, Kernel, Load
from rlx_core.emit.emitters import Emitted
from rlx_gpu.codegen.kernels import print_loops, refusal
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.scalars import scalars_of
from rlx_gpu.codegen.walks import Machine
from tests.codegen.kernels import SAMPLES

__all__ = ["MACHINES", "agree", "checked_values", "data_of", "kernels", "new_kernels", "printed"]

MACHINES = {
    "usual": Machine(),
    # Groups share rows of a few elements, threads take neighbours, and each has several shares.
    "small": Machine(group=32, wide_points=0, short_row=2, kept=4, most_groups=3),
    # Nothing stays in registers, and every row of more than two elements is computed in parts.
    "parts": Machine(group=32, wide_points=0, short_row=0, kept=0, few_rows=1000, long_row=2, part=2),
}

_TOLERANCE = {"f32": 8e-6, "f64": 4e-12, "f16": 1e-3, "bf16": 8e-3}
"""What orders of summation and functions of 4 ulp may differ by; of narrow floats one step, where the two round apart."""


def kernels(language: GpuDialect) -> list[Kernel]:
    """The samples of standard ops that the language has code for, each once."""
    scalars = scalars_of(language)
    return list(dict.fromkeys(k for k in SAMPLES.values() if refusal(k, language, scalars) is None))


@cache
def new_kernels(language: GpuDialect, name: str) -> list[Kernel]:
    """Of the samples those that are other functions on a machine than on the machines before it, each function once."""
    seen: set[tuple[str, ...]] = set()
    for machine in MACHINES:
        texts = {
            k: tuple(call.function for call in printed(k, language, MACHINES[machine]).calls) for k in kernels(language)
        }
        found = {text: k for k, text in reversed(texts.items()) if text not in seen}
        if machine == name:
            break
        seen.update(found)
    return list(found.values())[::-1]


def printed(kernel: Kernel, language: GpuDialect, machine: Machine) -> Emitted:
    return print_loops(kernel, language, machine, scalars_of(language))


def checked_values(kernel: Kernel, code: Emitted) -> list[int]:
    """The index, by its number in the kernel, that each site of the launches checks."""
    found: list[int] = []
    for call in code.calls:
        checked = (i for i, v in enumerate(kernel.values) if isinstance(v, Bound) and v.is_checked)
        found += [next(i for i in checked if fault_of(kernel, i) == fault) for fault in call.faults]
    return found


def data_of(kernel: Kernel, seed: int = 0) -> list[np.ndarray | None]:
    """Bytes for every buffer that is touched: small numbers in operands, a pattern in results."""
    rng = np.random.default_rng(seed)
    return [_bytes(kernel, i, rng) for i in range(len(kernel.buffers))]


def _bytes(kernel: Kernel, number: int, rng: np.random.Generator) -> np.ndarray | None:
    buffer = kernel.buffers[number]
    ends = [_end(kernel, a) for a in kernel.accesses if a.buffer == number]
    if not ends:
        return None
    count = max(ends) // buffer.dtype.itemsize + 1
    if buffer.is_result:
        return np.full(count * buffer.dtype.itemsize, 0xAA, np.uint8)
    if buffer.dtype.kind == "bool":
        values: np.ndarray = rng.integers(0, 2, count).astype(np.bool_)
    elif buffer.dtype.is_integer:
        values = rng.integers(0, 4, count).astype(buffer.dtype.numpy)
    else:
        values = (rng.standard_normal(count) + 0.1).astype(buffer.dtype.numpy)
        values[rng.integers(0, count, count // 16)] = np.nan
        values[rng.integers(0, count, count // 16)] = -np.inf
    return values.view(np.uint8)


def _end(kernel: Kernel, access: object) -> int:
    """The last byte's element that an access reaches."""
    assert hasattr(access, "strides"), "loads and stores have strides"
    steps = [abs(s) * (n - 1) for s, n in zip(access.strides, kernel.extents, strict=True)]
    if isinstance(access, Load):
        steps += [s * (kernel.values[v].size - 1) for v, s in access.dynamic]  # type: ignore[union-attr]
    return int(access.offset + sum(steps))  # type: ignore[attr-defined]


def agree(kernel: Kernel, want: list[np.ndarray | None], got: list[np.ndarray | None]) -> Iterator[str]:
    """What differs between two runs of a kernel."""
    for buffer, w, g in zip(kernel.buffers, want, got, strict=True):
        if not buffer.is_result or w is None or g is None:
            continue
        a, b = w.view(buffer.dtype.numpy), g.view(buffer.dtype.numpy)
        if buffer.dtype.is_float:
            a, b = a.astype(np.float64), b.astype(np.float64)
            tolerance = _TOLERANCE[buffer.dtype.name]
            is_same = np.isclose(a, b, rtol=tolerance, atol=tolerance / 4, equal_nan=True)
        else:
            is_same = a == b
        if not is_same.all():
            at = int(np.argmin(is_same))
            yield f"{kernel.name} {buffer.name}[{at}]: {a.ravel()[at]!r} wanted, {b.ravel()[at]!r} found"
