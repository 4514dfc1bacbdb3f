"""The leaves of a graph: inputs, parameters, and literal data."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

import numpy as np

from rlx_core.errors import DtypeError
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.protocols import Travels
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen

__all__ = ["Constant", "GraphArgument", "Input", "Literal", "Param", "literal"]


@frozen(eq=False, repr=False)
class Literal(Travels):
    """Constant data: little-endian bytes in the declared dtype, compared and hashed by content."""

    array: np.ndarray

    @cached_property
    def content(self) -> tuple[str, tuple[int, ...], bytes]:
        little = self.array.astype(self.array.dtype.newbyteorder("<"), copy=False)
        return self.dtype.name, self.array.shape, little.tobytes()

    @property
    def dtype(self) -> DType:
        return dtype(self.array.dtype)

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.array.shape)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Literal) and self.content == other.content)

    def __hash__(self) -> int:
        return hash(self.content)

    def __repr__(self) -> str:
        if self.array.size <= 4:
            return f"{self.array.tolist()}"
        return f"<{self.array.size} elements>"


_of_read_only: Final[WeakValueDictionary[int, Literal]] = WeakValueDictionary()
"""The data of read-only arrays, by the identity of the array, which they refer to."""


def literal(data: Any, of: DType | None = None) -> Literal:
    """Constant data from anything NumPy can read; the array is copied and made read-only.

    A read-only array that owns its memory is not copied, and has one object of this class however often it is used: a table that
    each layer of a model reads is in memory once.

    Raises:
        DtypeError: An integer is too large for the dtype.
    """
    if type(data) is np.ndarray and data.base is None and not data.flags.writeable and of is None:
        known = _of_read_only.get(id(data))
        if known is None and data.flags.c_contiguous and data.dtype == dtype(data.dtype).numpy:
            known = _of_read_only[id(data)] = Literal(data)
        if known is not None:
            return known
    try:
        array = np.array(data, dtype=None if of is None else of.numpy, order="C", copy=True)
    except OverflowError:
        raise DtypeError(f"constant: {data} does not fit {of or 'any dtype'}") from None
    array = array.astype(dtype(array.dtype).numpy, copy=False)  # native byte order, a dtype of ours
    array.flags.writeable = False
    return Literal(array)


@frozen(slots=False)
class GraphArgument(Op):
    """A leaf that the caller provides: its label and its type. An `Input` or a `Param`."""

    label: str
    type: TensorType
    category: ClassVar = "boundary"

    def infer(self) -> TensorType:
        return self.type


@define_op(domain="core")
class Input(GraphArgument):
    """A value that is provided in every run."""


@define_op(domain="core")
class Param(GraphArgument):
    """A value that is bound once and persists over runs."""


@define_op(domain="core")
class Constant(Op):
    """Literal data."""

    value: Literal
    category: ClassVar = "boundary"

    def infer(self) -> TensorType:
        return self.value.type

    def reference(self) -> np.ndarray:
        return self.value.array
