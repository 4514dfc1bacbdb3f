"""Addresses in memory, and arrays outside of the host's memory as seen by the parts of rlx that need only types."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from rlx_core.ir.array import is_array
from rlx_core.ir.dtypes import ALL, dtype
from rlx_core.ir.types import TensorType

_HOST_KINDS = (1, 3)
"""DLPack's numbers for the host's memory: its own, and its own pinned for a device."""


class At(NamedTuple):
    """An address in a driver's buffer; its form in kernels (an address, or a buffer and an offset) depends on the language."""

    buffer: Any
    offset: int


class Placed(ABC):
    """An array in the memory of a device; `numpy.asarray` copies it to the host."""

    @property
    @abstractmethod
    def type(self) -> TensorType:
        """Its dtype and dims."""

    @property
    @abstractmethod
    def place(self) -> str:
        """The name of the device: `gpu:0`."""

    @abstractmethod
    def donate(self, to: str) -> None:
        """Make every later use raise DonatedError: the program named `to` has written its results here."""


def placed_type(data: Any) -> TensorType | None:
    """The type of an array that lies on a device, rlx's own or a device library's; `None` for everything else.

    A library's array has dims and a dtype, and either reports a device's memory or has no host-memory interface. A dtype
    that is not NumPy's is known by its name (`torch.float32`), only for arrays that report their device by DLPack.
    """
    if isinstance(data, Placed):
        return data.type
    if is_array(data):
        return None
    shape, kind = getattr(data, "shape", None), getattr(data, "dtype", None)
    if not isinstance(shape, tuple) or kind is None:
        return None
    if not isinstance(kind, np.dtype):
        return _named_type(data, shape, str(kind).rpartition(".")[2])
    if hasattr(data, "__dlpack_device__"):
        is_there = data.__dlpack_device__()[0] not in _HOST_KINDS
    else:
        is_there = not hasattr(data, "__array__") and not hasattr(data, "__array_interface__")
    return TensorType(dtype(kind), shape) if is_there else None


def _named_type(data: Any, shape: tuple[int, ...], name: str) -> TensorType | None:
    """Return the type of an array on a device with its library's dtype; `None` if the dtype is unknown."""
    where = getattr(data, "__dlpack_device__", None)
    if where is None or where()[0] in _HOST_KINDS:
        return None
    known = next((d for d in ALL if d.numpy.name == name), None)
    return None if known is None else TensorType(known, tuple(shape))
