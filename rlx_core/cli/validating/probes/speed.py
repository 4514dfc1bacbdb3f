"""Throughput relative to the device library: its copy for what moves memory, its products for products."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import ml_dtypes
import numpy as np

import rlx_core as rlx
from rlx_core import nn
from rlx_core.cli.validating.bench import Bench, Skip, expect_same_bits
from rlx_core.cli.validating.results import CheckRow
from rlx_core.errors import ConfigError
from rlx_core.ir.dtypes import f32
from rlx_core.ir.types import TensorType
from rlx_core.testing.judges import near

ROW_SECONDS: Final = 20.0
"""Seconds of calls in a row."""

SAMPLES: Final = 15
LARGEST: Final = 64 << 20
MIN_COPY_SECONDS: Final = 1e-3
"""The array is enlarged until a copy takes this long."""

WIDTH: Final = 512

MIN_PRODUCT_SECONDS: Final = 1e-3
"""Square matrices are enlarged until a product takes this long."""

SIZES: Final = (128, 8192)
"""Rows of the smallest and of the largest matrices."""

DTYPES: Final = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}

ROUNDINGS: Final = 32.0
"""Units in the last place of the operands' dtype, relative to the largest result, by which two products may differ."""

PROGRAMS: Final[dict[str, tuple[Callable[..., Any], int]]] = {
    "scaled": (lambda x: x * 2.0, 2),
    "element-wise": (lambda x: rlx.tanh(x) * 0.5 + x * x, 2),
    "sum of rows": (lambda x: rlx.sum(x, axis=1), 1),
    "sum of columns": (lambda x: rlx.sum(x, axis=0), 1),
    "softmax": (lambda x: nn.softmax(x), 2),
    "transpose": (lambda x: x.T, 2),
    "running sum": (lambda x: rlx.cumulative_sum(x, axis=1), 2),
}
"""Functions of an array, and how many times its bytes they move at least."""


def speed(bench: Bench, _: str) -> Iterator[CheckRow]:
    """Medians of calls on data that lies on the device."""
    yield from moves(bench)
    yield from products(bench)


def moves(bench: Bench) -> Iterator[CheckRow]:
    """Programs that are bound by memory, relative to the copy of the device's library."""
    rate = 0.0
    nbytes = 1 << 18
    source: Any = None

    def copy() -> dict[str, Any]:
        nonlocal rate, nbytes, source
        driver = bench.device.driver
        while True:
            array = np.arange(nbytes // 4, dtype=np.float32).reshape(-1, WIDTH)
            source, target = bench.put(array), bench.device.empty(TensorType(f32, array.shape))
            places = (source.block.buffer, source.offset, target.block.buffer, target.offset, nbytes)
            seconds = median(bench, lambda places=places: driver.copy(*places), 3)  # type: ignore[misc]
            if seconds >= MIN_COPY_SECONDS or nbytes * 4 > LARGEST:
                break
            nbytes *= 4
        expect_same_bits([target.to_host()], [array], "the copy")
        seconds = median(bench, lambda: driver.copy(*places), SAMPLES)
        rate = 2 * nbytes / seconds
        return {"bytes": nbytes, "seconds": seconds, "gigabytes_per_second": rate / 1e9}

    yield from bench.check("copy", copy)
    if not rate:
        return

    def run(function: Any, times: int) -> str:
        f = bench.jit(function, outputs="device")
        f(source)
        seconds = median(bench, lambda: f(source), SAMPLES)
        return f"{times * nbytes / seconds / rate:.2f} of a copy, {times * nbytes / seconds / 1e9:.1f} GB/s"

    for name, arguments in PROGRAMS.items():
        yield from bench.check(name, run, *arguments)


def products(bench: Bench) -> Iterator[CheckRow]:
    """Square products in each dtype, relative to those of the vendor's library."""
    prefix = bench.target.partition(":")[0]
    declared = [spec for name, spec in bench.host.registry().options.items() if name.startswith(f"{prefix}.")]
    libraries = [(spec.name, trial.value) for spec in declared for trial in spec.trials if trial.is_library]
    if not libraries:
        yield CheckRow("products", "skipped", f"the plugin of {prefix} declares no library for products")
        return
    for option, value in libraries:
        for dtype, numpy in DTYPES.items():
            yield from bench.check(f"product {dtype}, {option}={value}", product, bench, numpy, {option: value})


def product(bench: Bench, dtype: np.dtype[Any], library: dict[str, Any]) -> str:
    """The rate of the default product, and its part of the library's, of which the results must be the same."""
    rng = np.random.default_rng(5)
    generated, other = (bench.jit(lambda x, w: x @ w, chosen, outputs="device") for chosen in ({}, library))
    size, largest = SIZES
    while True:
        x, w = (bench.put(rng.uniform(-1, 1, (size, size)).astype(dtype)) for _ in range(2))
        try:
            expected = other(x, w)
        except ConfigError as error:
            raise Skip(error.message) from None
        result = generated(x, w)
        if size >= largest or median(bench, lambda x=x, w=w: generated(x, w), 3) >= MIN_PRODUCT_SECONDS:  # type: ignore[misc]
            break
        size *= 2
    kernels = [sorted({kernel for _, kernel, _ in f.report.kernels}) for f in (generated, other)]
    if kernels[0] == kernels[1]:
        raise Skip(f"the library does not take the product: {', '.join(kernels[1])} ran")
    wide = np.asarray(expected.to_host()).astype(np.float64)
    bound = ROUNDINGS * float(ml_dtypes.finfo(dtype).eps) * float(np.max(np.abs(wide)))  # type: ignore[no-untyped-call]
    near(np.asarray(result.to_host()).astype(np.float64), wide, 0.0, bound, "the library's product is another one")
    seconds, its = (median(bench, lambda f=f: f(x, w), SAMPLES, ROW_SECONDS / 2) for f in (generated, other))  # type: ignore[misc]
    rate = 2 * size**3 / seconds / 1e12
    return f"{its / seconds:.2f} of the library, {rate:.3g} TFLOP/s of {size} rows"


def median(bench: Bench, call: Callable[[], Any], samples: int, limit: float = ROW_SECONDS) -> float:
    """The median of the seconds of a call and of its asynchronous work; after `limit` seconds no further one begins."""
    times: list[float] = []
    end = time.monotonic() + limit
    while len(times) < samples and (not times or time.monotonic() < end):
        bench.device.synchronize()
        start = time.perf_counter()
        retained = call()
        bench.device.synchronize()
        times.append(time.perf_counter() - start)
        del retained
    return statistics.median(times)
