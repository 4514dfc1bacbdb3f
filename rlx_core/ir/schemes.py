"""Schemes of quantised weights: blocks of numbers as codes, scales and other fields.

A quantised array has no dtype of its own: it is a set of ordinary arrays, its *fields*, and a scheme that states how values
follow from them. `decode` is written in ops, so that it is the meaning of the codes, their oracle, their gradient with respect to
scales, and the code of every target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar

import numpy as np
from attrs import evolve

from rlx_core.errors import Fact, ShapeError
from rlx_core.ir.dtypes import DType
from rlx_core.system.records import frozen


@frozen
class SchemeField:
    """One array of a quantised array.

    Attributes:
        name: Its name.
        dtype: Its dtype.
        shape: Its shape for each block; `()` for one number.
        is_shared: Whether there is one for the whole array, instead of one for each block.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...] = ()
    is_shared: bool = False

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * prod(self.shape)


@frozen
class Scheme(ABC):
    """How blocks of consecutive elements of the last axis are represented by fields.

    A subclass is a frozen record; it gives `name`, a default of `block`, `fields`, `decode` and `encode`.

    Attributes:
        block: Elements of a block; `None` for all elements of the last axis.
        name: The name under which a plugin registers it.
        multiple: A block is a multiple of so many elements.
        is_fixed: Whether blocks have the default size only.
        ggml_id: Number of the type in GGUF files, if it has one; fields then lie in a block of a file in their order.
    """

    block: int | None = None
    name: ClassVar[str] = ""
    multiple: ClassVar[int] = 1
    is_fixed: ClassVar[bool] = False
    ggml_id: ClassVar[int | None] = None

    @property
    @abstractmethod
    def fields(self) -> tuple[SchemeField, ...]:
        """The fields; arrays that belong to blocks come first."""

    @abstractmethod
    def decode(self, fields: Mapping[str, Any]) -> Any:
        """Return the values, `f32[..., blocks, block]`, from the fields, `[..., blocks, *field.shape]` each; written in ops."""

    @abstractmethod
    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        """Return the fields of finite values `f32[..., blocks, block]`; computed with NumPy."""

    @property
    def elements(self) -> int:
        """Elements of a block, of a scheme whose block is decided."""
        assert self.block is not None, "`for_length` decides the block"
        return self.block

    def for_length(self, length: int) -> Scheme:
        """Return the scheme for a last axis of `length` elements, with its block decided.

        Raises:
            ShapeError: The axis is not a whole number of blocks, or the scheme has no blocks of this size.
        """
        block = length if self.block is None else self.block
        if block < 1 or length % block:
            raise ShapeError(
                f"{self.name}: an axis of {length} elements is no whole number of blocks",
                Fact("block", block),
                hint="pad the axis, choose another block, or another scheme for this array",
            )
        default = type(self)().block
        if block % self.multiple or (self.is_fixed and block != default):
            sizes = f"of {default} elements" if self.is_fixed else f"of a multiple of {self.multiple} elements"
            raise ShapeError(f"{self.name}: it has blocks {sizes}", Fact("block", block))
        return self if block == self.block else evolve(self, block=block)

    @property
    def block_dtype(self) -> np.dtype[Any]:
        """The structured dtype of a block in a file: all fields of blocks, without gaps, little-endian."""
        fields = [f for f in self.fields if not f.is_shared]
        return np.dtype([(f.name, f.dtype.numpy.newbyteorder("<"), f.shape) for f in fields])

    def fields_of(self, raw: np.ndarray) -> dict[str, np.ndarray]:
        """Return the fields of blocks from a file, `u8[..., blocks · bytes of a block]`.

        They are views of `raw` if its last axis is contiguous. Only fields whose numbers are not aligned there, or not in the
        byte order of the processor, are copies.
        """
        is_contiguous = raw.strides[-1] == 1 or raw.shape[-1] == 1
        blocks = (raw if is_contiguous else np.ascontiguousarray(raw)).view(self.block_dtype)
        fields = {name: blocks[name] for name in self.block_dtype.names or ()}
        for name, view in fields.items():
            if not view.flags.aligned or not view.dtype.isnative:
                fields[name] = view.astype(view.dtype.newbyteorder("="))
                fields[name].flags.writeable = raw.flags.writeable
        return fields

    def bytes_of(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the bytes of blocks for a file; the inverse of `fields_of`."""
        names = self.block_dtype.names or ()
        shape = fields[names[0]].shape[: fields[names[0]].ndim - len(self.block_dtype[0].shape)]
        blocks = np.empty(shape, self.block_dtype)
        for name in names:
            blocks[name] = fields[name]
        return blocks.view(np.uint8)
