"""Samples of ops for the law checks: samples are defined with the op, values are generated here.

`Sample("f32[4, 8]", "f32[8]", eps=1e-3)` is operand types and attributes. Values are uniform in `low..high` for floats and
integers alike, unless `ranges` has another range for an operand, and the same in every process. `Rejected` is a call that must
fail, with the expected error and words of its message.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field

from rlx_core.errors import RlxError
from rlx_core.ir.dtypes import DType
from rlx_core.ir.op import Op, operand_names
from rlx_core.ir.types import TensorType, spec
from rlx_core.system.records import frozen

Range = tuple[float, float]


def _types(specs: Sequence[str | TensorType | None]) -> tuple[TensorType | None, ...]:
    return tuple(None if s is None else spec(s) for s in specs)


@frozen(init=False)
class Sample:
    """Operand types (`None` for an absent optional operand) and attributes on which an op must work.

    Args:
        specs: One type per operand, as printed.
        low, high: The range of the values (integers: inclusive, inclusive).
        ranges: Another range for single operands, by name.
        make: Creates the arrays from a NumPy generator, for operands that are not independent.
        is_smooth: Whether derivatives exist around the values; finite differences are computed only then.
        attributes: The op's attributes.
    """

    types: tuple[TensorType | None, ...]
    attributes: Mapping[str, Any]
    low: float
    high: float
    ranges: Mapping[str, Range]
    make: Callable[[np.random.Generator], Sequence[np.ndarray]] | None
    is_smooth: bool

    def __init__(
        self,
        *specs: str | TensorType | None,
        low: float = -2.0,
        high: float = 2.0,
        ranges: Mapping[str, Range] | None = None,
        make: Callable[[np.random.Generator], Sequence[np.ndarray]] | None = None,
        is_smooth: bool = True,
        **attributes: Any,
    ) -> None:
        self.__attrs_init__(_types(specs), attributes, low, high, ranges or {}, make, is_smooth)

    def arrays(self, op: type[Op]) -> list[np.ndarray | None]:
        """Return operand arrays; the same on every call and in every process."""
        seed = zlib.crc32(f"{op.name}{self.types}{sorted(self.attributes.items(), key=str)}".encode())
        return self.drawn(op, np.random.default_rng(seed))

    def drawn(self, op: type[Op], rng: np.random.Generator) -> list[np.ndarray | None]:
        """Return operand arrays from a generator."""
        if self.make is not None:
            drawn = iter(self.make(rng))
            return [None if t is None else np.asarray(next(drawn)).astype(t.dtype.numpy) for t in self.types]
        names = operand_names(op, len(self.types))
        return [
            None if t is None else draw(rng, t, *self.ranges.get(n, (self.low, self.high)))
            for n, t in zip(names, self.types, strict=True)
        ]

    def with_types(self, types: Sequence[TensorType | None]) -> Sample:
        """Return the sample with other operand types."""
        return Sample(*types, **self._settings, **self.attributes)

    def with_attributes(self, **attributes: Any) -> Sample:
        """Return the sample with other values of some attributes."""
        return Sample(*self.types, **self._settings, **{**self.attributes, **attributes})

    @property
    def _settings(self) -> Any:
        return {name: getattr(self, name) for name in ("low", "high", "ranges", "make", "is_smooth")}


def draw(rng: np.random.Generator, type: TensorType, low: float, high: float) -> np.ndarray:
    """Return an array of a static type with values between `low` and `high`."""
    shape = type.static_shape
    if type.dtype.name == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if type.dtype.is_integer:
        least = max(0, low) if type.dtype.kind == "uint" else low
        return rng.integers(int(least), int(high), shape, endpoint=True).astype(type.dtype.numpy)
    if type.dtype.is_complex:
        parts = rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)
        return np.asarray(parts, type.dtype.numpy)
    return np.asarray(rng.uniform(low, high, shape)).astype(type.dtype.numpy)


@frozen(init=False)
class Rejected:
    """A call that must raise `error` with the text `says` in its message."""

    types: tuple[TensorType | None, ...]
    error: type[RlxError]
    says: str
    attributes: Mapping[str, Any]

    def __init__(
        self, *specs: str | TensorType | None, error: type[RlxError], says: str = "", **attributes: Any
    ) -> None:
        self.__attrs_init__(_types(specs), error, says, attributes)


@frozen(repr=False)
class Case:
    """A sample of one op; prints as the corresponding call."""

    op: type[Op]
    sample: Sample | Rejected
    dtype: DType | None = field(default=None)

    def __repr__(self) -> str:
        operands = ["_" if t is None else str(t) for t in self.sample.types]
        attributes = [f"{k}={v}" for k, v in self.sample.attributes.items()]
        return f"{self.op.name.removeprefix('rlx.')}({', '.join(operands + attributes)})"
