"""Arrays in the memory of a device: dense, of a known type, copied to the host only on request."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rlx_core.device.driver import At, View
from rlx_core.device.pool import Block, DonatedBlock
from rlx_core.errors import IndexRangeError, PlaceError, TraceError
from rlx_core.ir.dtypes import DType
from rlx_core.ir.placed import Placed
from rlx_core.ir.strides import dense_strides
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.device.device import Device


class Unsettled(Protocol):
    """A run that the device may not have finished, and that may have failed."""

    def settle(self) -> None:
        """Wait for it, and raise its error if it failed."""


@frozen(eq=False, repr=False)
class DeviceArray(Placed):
    """A dense array in a device's memory. Programs on that device take it as it lies and give such arrays back.

    The run that produces it may still be in progress; reading elements waits for that run, and raises its error if it failed.

    Attributes:
        device: Where it lies.
        block: The memory, which lives as long as the array.
        offset: Bytes from the block's start.
        type: Its dtype and dims, both known.
        run: The run that it comes from, if that one can fail.
    """

    device: Device
    block: Block
    offset: int
    type: TensorType
    run: Unsettled | None = None

    @property
    def place(self) -> str:
        """The name of its device."""
        return self.device.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.static_shape

    @property
    def dtype(self) -> np.dtype:
        """NumPy's dtype of the elements."""
        return self.type.dtype.numpy

    @property
    def element(self) -> DType:
        """rlx's dtype of the elements."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return self.type.rank

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.type.static_nbytes

    def to_host(self) -> np.ndarray:
        """A copy in the host's memory.

        Raises:
            IndexRangeError: The run that made it was given an index outside; and whatever else a run reports.
            DeviceLostError: The device does not answer any more.
        """
        if self.run is not None:
            self.run.settle()
        result = np.empty(self.shape, self.dtype)
        if result.size:
            self.device.driver.read(self.block.buffer, self.offset, result)
        return result

    def copy(self, order: str = "C") -> DeviceArray:
        """Return a copy on the same device; it is dense in row-major order whatever `order` is."""
        return self._part(lambda x: x)

    def block_until_ready(self) -> DeviceArray:
        """Return this array, once the run that produces it has ended.

        Raises:
            IndexRangeError: The run was given an index outside; and whatever else a run reports.
        """
        self._shown()
        self.device.synchronize()
        return self

    def donate(self, to: str) -> None:
        object.__setattr__(self, "block", DonatedBlock(to, self.type))

    @property
    def T(self) -> DeviceArray:
        """The array with its axes in the opposite order, a dense copy on the same device."""
        return self._part(lambda x: x.T)

    def __getitem__(self, key: Any) -> DeviceArray:
        """Return the elements that integers, slices, `...` and `None` select, as a dense copy on the same device.

        Raises:
            IndexRangeError: An integer is outside its axis, or there are more than axes.
            TraceError: The key is an array, which only programs take.
        """
        entries = key if isinstance(key, tuple) else (key,)
        if not all(map(_is_basic, entries)):
            raise TraceError(
                f"{self!r}: an array on a device is indexed by integers, slices, `...` and None",
                hint="programs are indexed by arrays too: rlx.jit(lambda x, at: x[at], target=...)",
            )
        with_rest = entries if any(each is ... for each in entries) else (*entries, ...)
        try:
            return self._part(lambda x: x[with_rest])
        except IndexError as error:
            raise IndexRangeError(f"{self!r}: {error}") from None

    def _part(self, view: Callable[[np.ndarray], np.ndarray]) -> DeviceArray:
        """Return a copy of a view of the array. `view` is applied to a host array with the same strides and no data."""
        one = np.empty(1, f"V{self.element.itemsize}")
        seen = view(np.lib.stride_tricks.as_strided(one, self.shape, dense_strides(self.type)))
        first = seen.__array_interface__["data"][0] - one.__array_interface__["data"][0] if seen.size else 0
        location = At(self.block.buffer, self.offset + first)
        return self.device.dense(location, self.type.with_shape(seen.shape), seen.strides, self.run)

    def __copy__(self) -> DeviceArray:
        return self.copy()

    def __deepcopy__(self, memo: object) -> DeviceArray:
        return self.copy()

    def __reduce__(self) -> Any:
        raise PlaceError(
            f"pickle: an array lies on {self.place}, which another process may not have",
            hint="pickle what to_host() gives",
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError(f"an array on {self.place} can only be copied to the host")
        result = self.to_host()
        return result if dtype is None else result.astype(dtype, copy=False)

    def item(self) -> bool | int | float | complex:
        """Return the only element, copied to the host.

        Raises:
            ValueError: The array has more elements than one, or none.
        """
        return self.to_host().item()

    def __float__(self) -> float:
        return float(self.to_host())

    def __int__(self) -> int:
        return int(self.to_host())

    def __bool__(self) -> bool:
        return bool(self.to_host())

    def __dlpack__(self, **options: Any) -> Any:
        return self.device.driver.export(self._shown(), options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.driver.dlpack_device

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return an attribute by which other libraries recognise arrays on such a device, as the driver defines it."""
            if name[:2] != "__" or name not in self.device.driver.attributes:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return self.device.driver.attribute(name, self._shown())

    def _shown(self) -> View:
        """Return the view for another library, once the run that produced it has succeeded."""
        if self.run is not None:
            self.run.settle()
        return View(self.block.buffer, self.offset, self.shape, self.dtype, self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array of rank 0")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{self.type} on {self.place}>"


def _is_basic(entry: object) -> bool:
    """Return whether an entry of a key selects by position alone (basic indexing)."""
    is_number = isinstance(entry, int | np.integer) and not isinstance(entry, bool)
    return is_number or entry is None or entry is ... or isinstance(entry, slice)
