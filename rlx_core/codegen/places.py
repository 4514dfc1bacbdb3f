"""Where operands and results lie, as a kernel sees them, and what a kernel that stopped at a number has to say."""

from __future__ import annotations

import numpy as np

from rlx_core.errors import Fact, IndexRangeError
from rlx_core.ir.strides import WIDEST, Strides, dense_strides, is_dense
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen

__all__ = ["WIDEST", "Fault", "Layout", "Place"]


@frozen
class Place:
    """One operand or result.

    Attributes:
        type: Its type, with known dims.
        strides: In bytes, one an axis; 0 where it is broadcast.
        is_bound: Whether it is a parameter or a constant, the same in every run: such an operand may be packed.
        is_held: Whether it is the same in every round of the loop that the step is in, and so may be packed before the first.
        is_fresh: Whether each round of that loop has a part of its own of an array here, which no cache holds yet.
        is_inside: Whether it lies in the result already, where `Op.parts` has it.
        literal: The bytes of the one element that all of it is, where that is known when code is made.
        alignment: Bytes that the first element lies at a multiple of; no more than `WIDEST` is asked.
    """

    type: TensorType
    strides: Strides
    is_bound: bool = False
    is_held: bool = False
    is_fresh: bool = False
    is_inside: bool = False
    literal: bytes | None = None
    alignment: int = WIDEST

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return is_dense(self.type, self.strides)

    @property
    def number(self) -> bool | int | float | None:
        """The element of a literal; `None` for a complex one, of which no register holds both parts."""
        if self.literal is None or self.type.dtype.is_complex:
            return None
        found: bool | int | float = np.frombuffer(self.literal, self.type.dtype.numpy)[0].item()
        return found

    @classmethod
    def dense(cls, type: TensorType) -> Place:
        """A row-major buffer of its own."""
        return cls(type, dense_strides(type))


@frozen
class Layout:
    """Where a step's operands and results lie. Equal ops with equal layouts share one function."""

    operands: tuple[Place | None, ...]
    results: tuple[Place, ...]


@frozen
class Fault:
    """What a kernel that met an index outside has to say.

    Attributes:
        message: With `{}` where the index goes.
    """

    message: str

    def __call__(self, index: int | None, place: int | None = None) -> IndexRangeError:
        """The exception to raise.

        Args:
            index: `None` where it is not known.
            place: The number of the point at which the kernel met it, where kernels say so.
        """
        where = () if place is None else (Fact("place", f"point {place} of the kernel"),)
        return IndexRangeError(self.message.format("(not known)" if index is None else index), *where)
