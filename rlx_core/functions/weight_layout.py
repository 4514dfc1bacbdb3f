"""Layout of weights in a buffer that several programs read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from rlx_core.errors import ShapeError
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen

_ALIGNMENT: Final = 64
"""Bytes: a cache line, and the widest vector that a CPU loads."""


@frozen
class WeightSpan:
    """One weight: its type, and its byte offset in the buffer."""

    type: TensorType
    offset: int

    @property
    def end(self) -> int:
        return self.offset + self.type.static_nbytes


@frozen
class WeightLayout:
    """A buffer of weights, one after another in the order of their names, each at a multiple of 64 bytes.

    Attributes:
        places: The position of each weight, by name, sorted.
        nbytes: The size of the buffer, which contains only weights and padding.
    """

    places: Mapping[str, WeightSpan]
    nbytes: int

    @classmethod
    def of(cls, types: Mapping[str, TensorType]) -> WeightLayout:
        """Return the layout of weights of these types.

        Raises:
            ShapeError: A size is unknown.
        """
        places: dict[str, WeightSpan] = {}
        end = 0
        for name in sorted(types):
            if not types[name].is_static:
                raise ShapeError(f"weights: {name} is {types[name]}; where weights lie depends on their sizes")
            places[name] = WeightSpan(types[name], -(-end // _ALIGNMENT) * _ALIGNMENT)
            end = places[name].end
        return cls(places, end)

    def allocate(self) -> np.ndarray:
        """Return a buffer, u8[nbytes], of zeros, that starts at a multiple of 64 bytes."""
        storage = np.zeros(self.nbytes + _ALIGNMENT, np.uint8)
        start = -storage.ctypes.data % _ALIGNMENT
        return storage[start : start + self.nbytes]

    def views(self, region: np.ndarray) -> dict[str, np.ndarray]:
        """Return the weights as arrays that are views of a buffer, by name."""
        return {
            name: region[place.offset : place.end].view(place.type.dtype.numpy).reshape(place.type.static_shape)
            for name, place in self.places.items()
        }
