"""The leaves of a graph: inputs, parameters, and literal data."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

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
        return isinstance(other, Literal) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)

    def __repr__(self) -> str:
        if self.array.size <= 4:
            return f"{self.array.tolist()}"
        return f"<{self.array.size} elements>"


def literal(data: Any, of: DType | None = None) -> Literal:
    """Constant data from anything NumPy can read; the array is copied and made read-only.

    Raises:
        DtypeError: An integer is too large for the dtype.
    """
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
