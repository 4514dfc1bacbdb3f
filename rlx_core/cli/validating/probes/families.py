"""Every sample of the ops of a family, at three sizes, in odd strides and with NaN, against the interpreter in float64."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from rlx_core.cli.validating.bench import Bench, Skip
from rlx_core.cli.validating.results import CheckRow
from rlx_core.device.driver import At
from rlx_core.errors import RlxError
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.types import TensorType
from rlx_core.ops import standard_ops
from rlx_core.testing.cases import OpProgram, programs, typed, wide
from rlx_core.testing.judges import near_oracle
from rlx_core.testing.variants import bases

SCALES: Final = ((1, 0), (5, 2), (23, 3))
"""Each size of a sample, multiplied and increased."""

MAX_ELEMENTS: Final = 1 << 16


def family(bench: Bench, category: str) -> Iterator[CheckRow]:
    """The ops of one category. First every op once, then the other sizes, so that little time reaches every op."""
    ops = tuple(op for op in standard_ops() if op.category == category)
    samples = first_of_each(bases([p for p in programs(ops) if p.failure is None]))
    kernels: Counter[str] = Counter()
    left: list[str] = []

    def run(chosen: OpProgram) -> dict[str, Any]:
        used = agree(bench, chosen)
        kernels.update(used)
        return {"kernels": used}

    for scale in SCALES:
        for program in samples:
            chosen = scaled(program, *scale)
            if chosen is None:
                continue
            name = f"{program.op.name} {list(map(str, chosen.sample.types))}"
            if bench.is_late:
                left.append(name)
                continue
            yield from bench.check(name, run, chosen)
    if left:
        yield CheckRow(
            "samples without time",
            "skipped",
            f"{len(left)} samples not reached, the first {left[0]}",
            {"samples": left},
        )
    yield CheckRow("kernels", "passed", f"{len(kernels)} kernels", {"kernels": dict(kernels)})


def first_of_each(samples: Sequence[OpProgram]) -> list[OpProgram]:
    """The first sample of each op; the others differ in attributes."""
    by_op: dict[Any, OpProgram] = {}
    for program in samples:
        by_op.setdefault(program.op, program)
    return list(by_op.values())


def scaled(program: OpProgram, factor: int, more: int) -> OpProgram | None:
    """The program at another size; `None` where the op does not take it, or it is too large."""
    if factor == 1:
        return program
    if program.sample.make is not None:
        return None
    types = tuple(
        None if t is None else t.with_shape(d if d in (0, 1) else d * factor + more for d in t.shape)
        for t in program.sample.types
    )
    scaled_program = program.with_types(types)
    try:
        every = [*types, *(t for n in scaled_program.graph.nodes for t in n.types)]
        is_small = all(t is None or t.size <= MAX_ELEMENTS for t in every)
    except RlxError:
        return None
    return scaled_program if is_small and scaled_program.failure is None else None


def agree(bench: Bench, program: OpProgram) -> list[str]:
    """Compare a program's results with the interpreter's, and return the kernels.

    Raises:
        AssertionError: They differ.
        Skip: It runs on the host.
    """
    missing_dtypes = bench.device.facts.unsupported
    for value in (*program.graph.inputs, *program.graph.outputs):
        if value.dtype.name in missing_dtypes:
            raise Skip(f"the device has no {value.dtype}")
    executable = bench.executable(program.graph)
    used = sorted({kernel for _, kernel, plugin in executable.report.kernels if plugin})
    if not used:
        raise Skip("runs on the host: the target has no kernel")
    arrays = program.draw()
    outputs = strided_results(bench, executable, arrays)
    for array, output in zip(outputs, program.graph.outputs, strict=True):
        computed = TensorType(dtype(array.dtype), array.shape)
        if computed != output.type:
            raise AssertionError(f"the device gives {computed} instead of {output.type}")
    near_oracle(program.graph, outputs, wide(program.graph, arrays), arrays, "against the interpreter in float64")
    if has_nan_meaning(program):
        lose_no_nan(bench, program, executable, arrays)
    return used


def strided_results(bench: Bench, executable: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results for arrays that lie in odd strides at odd offsets."""
    device_arrays = [strided(bench, array) for array in arrays]
    return [np.asarray(each) for each in executable.run_slots(device_arrays)]


def strided(bench: Bench, array: np.ndarray) -> Any:
    """The array on the device, taken from memory with gaps, at an odd offset."""
    if not array.size or not array.ndim:
        return bench.put(array)
    gaps = np.zeros((*array.shape, 3), array.dtype)
    gaps[..., 1] = array
    memory = bench.put(gaps)
    strides = tuple(gaps.strides[: array.ndim])
    type = TensorType(dtype(array.dtype), array.shape)
    address = At(memory.block.buffer, memory.offset + array.itemsize)
    result = bench.device.dense(address, type, strides)
    bench.device.synchronize()  # `memory` may be freed
    return result


def has_nan_meaning(program: OpProgram) -> bool:
    """Return whether the op computes each element from floats of any value."""
    sample = program.sample
    return program.op.category in ("elementwise", "reduction") and sample.make is None


def lose_no_nan(bench: Bench, program: OpProgram, executable: Any, arrays: Sequence[np.ndarray]) -> None:
    changed = [array.copy() for array in arrays]
    chosen = [a for a in changed if a.size and dtype(a.dtype).is_differentiable]
    for array in chosen[:1]:
        array.reshape(-1)[array.size // 2] = np.nan
    if not chosen:
        return
    with np.errstate(all="ignore"):
        expected = typed(program.graph, changed)
    for a, b in zip(strided_results(bench, executable, changed), expected, strict=True):
        if dtype(b.dtype).is_differentiable and np.any(np.isnan(b) & ~np.isnan(a)):
            raise AssertionError(
                f"a NaN is lost: {int(np.sum(np.isnan(b)))} expected, {int(np.sum(np.isnan(a)))} there"
            )
