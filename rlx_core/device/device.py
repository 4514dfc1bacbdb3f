"""One device as programs see it: opened when it is first used, with a pool of memory, for the process that opened it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from rlx_core.device.array import DeviceArray, Unsettled
from rlx_core.device.driver import At, DeviceFacts, Driver
from rlx_core.device.pool import Block, Pool
from rlx_core.errors import DeviceLostError, DtypeError, Fact, OutOfMemoryError
from rlx_core.ir.array import usable
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.placed import Placed, placed_type
from rlx_core.ir.strides import WIDEST, Strides, dense_strides, is_dense
from rlx_core.ir.types import TensorType
from rlx_core.system.locks import Lock


class Device:
    """A device; there is one object for each in a process.

    Args:
        name: The target and the number: `gpu:0`.
        facts: Properties of the device, as far as they are known without using it.
        open: Makes the driver, when something is first done on the device.

    Attributes:
        rearrange: Makes elements dense, given the address of the first element, their type and strides, and the destination. It
            comes from the backend, which generates code in the device's language.
        ahead: Functions that were built before programs use them, by name: the driver's module.
    """

    rearrange: Callable[[At, TensorType, Strides, At], None] | None = None
    ahead: Mapping[str, Any] = {}

    def __init__(self, name: str, facts: DeviceFacts, open: Callable[[], Driver]) -> None:
        self.name = name
        self.facts = facts
        self._open = open
        self._driver: Driver | None = None
        self._pool: Pool | None = None
        self._pid = 0
        self._lock = Lock(f"the opening of {name}")

    @property
    def driver(self) -> Driver:
        """Its driver, opened now if it was not yet.

        Raises:
            DeviceLostError: The process was forked since.
        """
        driver = self._driver
        if driver is None:
            driver = self._opened()
        if self._pid != os.getpid():
            raise DeviceLostError(
                f"{self.name}: this process was forked after the device had been used, and a driver does not follow",
                Fact("used by", f"process {self._pid}"),
                hint='start processes with multiprocessing.set_start_method("spawn"), or fork before the first use',
            )
        return driver

    @property
    def pool(self) -> Pool:
        """Its memory."""
        driver = self.driver
        if self._pool is None:
            with self._lock:
                self._pool = self._pool or Pool(self.name, driver)
        return self._pool

    @property
    def is_open(self) -> bool:
        """Return whether the device was used in this process."""
        return self._driver is not None and self._pid == os.getpid()

    def block(self, nbytes: int, what: str, *, is_apart: bool = False) -> Block:
        """Return a block of its memory; see `Pool.block`. Outside of a run, an allocation fails only after all runs have
        finished.
        """
        pool = self.pool
        if not pool.turns.is_inside:
            with suppress(OutOfMemoryError):
                return pool.block(nbytes, what, is_apart=is_apart)
            with pool.turns.alone():
                return pool.block(nbytes, what, is_apart=is_apart)
        return pool.block(nbytes, what, is_apart=is_apart)

    def put(self, data: np.ndarray, what: str = "an array") -> DeviceArray:
        """A copy of an array on the device.

        Raises:
            OutOfMemoryError: The device has not enough memory.
        """
        array = self.empty(TensorType(dtype(data.dtype), data.shape), what)
        if data.size:
            self.driver.write(array.block.buffer, 0, usable(data), waits=True)
        return array

    def empty(self, type: TensorType, what: str = "an array") -> DeviceArray:
        """Return an array with uninitialised elements."""
        return DeviceArray(self, self.block(type.static_nbytes, what), 0, type)

    def adopt(self, data: Any) -> DeviceArray | None:
        """Return a device library's array as an rlx array without a copy, if it is on this device; `None` for everything else.

        One with gaps, or that begins where kernels cannot read several elements at once, is copied on the device.
        """
        type = None if isinstance(data, Placed) else placed_type(data)
        if type is None:
            return None
        adopted = self.driver.adopt(data)
        if adopted is None:
            return None
        strides = adopted.strides or dense_strides(type)
        if type.size and (adopted.offset % WIDEST or not is_dense(type, strides)):
            return self.dense(At(adopted.buffer, adopted.offset), type, strides)
        return DeviceArray(self, Block(adopted.buffer, type.static_nbytes), adopted.offset, type)

    def dense(self, location: At, type: TensorType, strides: Strides, run: Unsettled | None = None) -> DeviceArray:
        """A dense copy of elements that lie at strides on the device.

        Args:
            location: Where the first one lies.
            run: The run that they come from, if that one can fail.
        """
        result = self.empty(type, "a dense copy")
        if type.size and is_dense(type, strides):
            self.driver.copy(location.buffer, location.offset, result.block.buffer, result.offset, result.nbytes)
        elif type.size:
            assert self.rearrange is not None, f"a backend said how {self.name} copies what has gaps"
            self.rearrange(location, type, strides, At(result.block.buffer, result.offset))
        return DeviceArray(self, result.block, result.offset, type, run)

    def expect_dtype(self, type: TensorType, what: str) -> None:
        """Require that the device has arithmetic for a dtype; its memory holds any.

        Raises:
            DtypeError: It does not.
        """
        if type.dtype.name in self.facts.unsupported:
            unsupported = ", ".join(sorted(self.facts.unsupported))
            raise DtypeError(
                f"{self.name}: {what} is {type}, and the device has no {type.dtype}", Fact("lacks", unsupported)
            )

    def synchronize(self) -> None:
        """Wait for all work started on it."""
        if self.is_open:
            self.driver.synchronize()

    def _opened(self) -> Driver:
        with self._lock:
            if self._driver is None:
                self._driver = self._open()
                self._pid = os.getpid()
            return self._driver

    def __repr__(self) -> str:
        return f"<{self.name}: {self.facts.name}>"
