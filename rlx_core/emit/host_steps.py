"""Steps of a device's program that run on the host, because nothing on the device runs their op and the configuration allows it.

Such a step waits for the device, reads its operands, and writes its results back; how many bytes that is stands in the report.
What lies on the host anyway, a bound parameter, a constant or an input of this run, is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx_core.device.driver import At, Driver
from rlx_core.emit.places import Places
from rlx_core.errors import RlxError
from rlx_core.ir.graph import Value
from rlx_core.ir.lir import Step
from rlx_core.ir.strides import dense_strides, extent
from rlx_core.pipeline.planning.alias import placement
from rlx_core.pipeline.select.backend import at_step

__all__ = ["run_on_host", "strided", "value_on_host"]

Locate = Callable[[Value], At]


def run_on_host(
    step: Step,
    run: Callable[..., None],
    places: Places,
    locate: Locate,
    known: Mapping[Value, np.ndarray],
    driver: Driver,
) -> tuple[int, int]:
    """Run a step with NumPy on what is on the device.

    Args:
        step: Which one.
        run: The function of its kernel.
        places: How the program's values lie.
        locate: Where each of them is now.
        known: The arrays of roots that lie on the host too, and are the same there.
        driver: The device.

    Returns:
        The bytes that were read from the device and that were written to it.
    """
    node, nread, nwritten = step.node, 0, 0
    operands: list[np.ndarray | None] = []
    for value in node.operands:
        if value is None:
            operands.append(None)
            continue
        array, nbytes = value_on_host(value, places, locate, known, driver)
        operands.append(array)
        nread += nbytes
    results = [np.empty(v.type.static_shape, v.dtype.numpy) for v in node.results]
    try:
        with np.errstate(all="ignore"):
            run(node.op, *operands, out=results[0] if len(results) == 1 else tuple(results), workspace=None)
    except RlxError as error:
        raise at_step(error, step) from error.__cause__
    for value, array in zip(node.results, results, strict=True):
        if array.size:
            assert places.is_dense(value), "rows that run on the host do not say that they write with gaps"
            place = locate(value)
            driver.write(place.buffer, place.offset, array, waits=True)
            nwritten += array.nbytes
    return nread, nwritten


def value_on_host(
    value: Value, places: Places, locate: Locate, known: Mapping[Value, np.ndarray], driver: Driver
) -> tuple[np.ndarray, int]:
    """A value as an array on the host, perhaps a strided one, and the bytes that were read from the device for it."""
    place = placement(value, places.lir.aliases)
    shape, dtype = value.type.static_shape, value.dtype.numpy
    if value.type.size == 0:
        return np.empty(shape, dtype), 0
    if place.root in known:
        root = known[place.root]
        return strided(root.reshape(-1).view(np.uint8), place.byte_offset, shape, dtype, place.strides), 0
    at = locate(value)
    low, high = extent(value.type, place.strides)
    raw = np.empty(high - low, np.uint8)
    driver.read(at.buffer, at.offset + low, raw)
    if place.strides == dense_strides(value.type):
        return raw.view(dtype).reshape(shape), raw.nbytes
    return strided(raw, -low, shape, dtype, place.strides), raw.nbytes


def strided(
    raw: np.ndarray, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...]
) -> np.ndarray:
    """The array of these strides whose first element is at a byte of `raw`."""
    # One element more than the bytes hold whole would end behind them; bfloat16 has no buffer of its own, so bytes are viewed.
    low = sum(s * (d - 1) for d, s in zip(shape, strides, strict=True) if s < 0)
    start = offset + low
    window = raw[start:]
    elements = window[: window.size // dtype.itemsize * dtype.itemsize].view(dtype)
    return np.lib.stride_tricks.as_strided(elements[-low // dtype.itemsize :], shape, strides)
