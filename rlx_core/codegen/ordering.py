"""Sorting as a problem, and the definition of its order: elements as unsigned integers of the same width.

Zeros of either sign are one key and so are all NaN, which come after every number; a descending order has the complements, so
that ties stay in index order there too. Keys are made with integer instructions alone: f16 and bf16 need not be widened. Among
extremes a NaN is the first instead, in either direction.
"""

from __future__ import annotations

from math import prod
from typing import Any, Literal, cast

import numpy as np

from rlx_core.codegen.scalars.assembler import Assembler, Relation, V
from rlx_core.ir.dtypes import DType, bf16, f16, f32
from rlx_core.ir.types import TensorType, normalize_axis
from rlx_core.ops.counting import ArgMax, ArgMin
from rlx_core.ops.sorting import ArgSort, SearchSorted, TopK
from rlx_core.system.records import frozen

_MANTISSA = {f16: 10, bf16: 7, f32: 23}


@frozen
class Keys:
    """The keys of elements of one dtype.

    Attributes:
        dtype: Dtype of the elements; a real one or bool.
        is_descending: Whether large elements come first.
        nan_is_first: Whether NaN comes before all in either direction, not after every number that is larger.
    """

    dtype: DType
    is_descending: bool = False
    nan_is_first: bool = False

    @property
    def bits(self) -> int:
        """Bits of a key, and of an element."""
        return 8 * self.dtype.itemsize

    def of(self, b: Assembler[V], x: V) -> V:
        """The key of an element's bits, an integer of their width, as memory has them."""
        key = self._of_float(b, x) if self.dtype.is_float else x
        if self.dtype.kind == "int":
            key = b.xor(x, b.constant(x, 1 << (self.bits - 1)))
        return b.not_(key) if self.is_descending else key

    def _of_float(self, b: Assembler[V], x: V) -> V:
        sign = 1 << (self.bits - 1)
        infinity = sign - (1 << _MANTISSA.get(self.dtype, 52))
        size = b.and_(x, b.constant(x, sign - 1))
        # Larger bits mean a larger number on the right and a smaller one on the left.
        is_left = b.icmp_signed("<", x, b.constant(x, 0))
        right = b.or_(size, b.constant(x, sign))
        key = b.select(is_left, b.sub(b.constant(x, sign), size), right)
        is_nan = b.icmp_unsigned(">", size, b.constant(x, infinity))
        return b.select(is_nan, b.constant(x, 0 if self.nan_is_first and not self.is_descending else -1), key)


@frozen
class Sorting:
    """Lines of an operand and of its results: [outer, n, inner] and [outer, kept, inner] elements, all dense.

    Sizes are known, or expressions for unknown ones.

    Attributes:
        keys: The order.
        kept: Elements of a line that results have: all, or the first few in order.
        index: The dtype of positions.
        has_values: Whether the elements are a result, before their positions.
    """

    keys: Keys
    outer: int
    n: int
    inner: int
    kept: int
    index: DType
    has_values: bool

    @classmethod
    def of(cls, op: Any, x: TensorType, first: TensorType) -> Sorting:
        """The problem of an op on an operand, whose first result has the type `first`."""
        shape, axis = cast("tuple[int, ...]", x.shape), normalize_axis(op.axis, x.rank)
        keys = Keys(x.dtype, op.largest if isinstance(op, TopK) else op.descending)
        outer, inner, count = prod(shape[:axis]), prod(shape[axis + 1 :]), cast(int, first.shape[axis])
        return cls(keys, outer, shape[axis], inner, count, op.index_dtype, not isinstance(op, ArgSort))

    def __str__(self) -> str:
        order = "descending" if self.keys.is_descending else "ascending"
        few = f", the first {self.kept}" if self.kept != self.n else ""
        results = "values and positions" if self.has_values else "positions"
        return (
            f"sort {self.keys.dtype}[{self.outer}, {self.n}, {self.inner}] along 1 {order}{few}: {results} {self.index}"
        )

    @property
    def lines(self) -> int:
        return self.outer * self.inner

    def run(self, b: Assembler[np.ndarray], x: np.ndarray) -> tuple[np.ndarray, ...]:
        """The results of a dense operand, with keys by an assembler of arrays."""
        elements = np.ascontiguousarray(x).reshape(self.outer, self.n, self.inner)
        keys = self.keys.of(b, elements.view(f"i{x.itemsize}")).view(f"u{x.itemsize}")
        order = np.argsort(keys, axis=1, kind="stable")[:, : self.kept]
        positions = order.astype(self.index.numpy)
        return (np.take_along_axis(elements, order, 1), positions) if self.has_values else (positions,)


@frozen
class Extreme:
    """Positions of the first extreme of each line: [outer, n, inner] elements, [outer, 1, inner] positions.

    No line is empty. Sizes are known, or expressions for unknown ones.
    """

    keys: Keys
    outer: int
    n: int
    inner: int
    index: DType

    @classmethod
    def of(cls, op: ArgMax | ArgMin, x: TensorType) -> Extreme:
        shape, axis = cast("tuple[int, ...]", x.shape), normalize_axis(op.axis, x.rank)
        keys = Keys(x.dtype, isinstance(op, ArgMax), nan_is_first=True)
        return cls(keys, prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]), op.index_dtype)

    def __str__(self) -> str:
        which = "max" if self.keys.is_descending else "min"
        return f"position of {which} {self.keys.dtype}[{self.outer}, {self.n}, {self.inner}] along 1: {self.index}"

    @property
    def lines(self) -> int:
        return self.outer * self.inner

    def is_better(self, b: Assembler[V], x: V, y: V) -> V:
        """Return whether an element is chosen over an earlier one, in registers: the comparison of keys, in fewer steps."""
        dtype = self.keys.dtype
        relation: Relation = ">" if self.keys.is_descending else "<"
        if not dtype.is_float:
            return (b.icmp_signed if dtype.kind == "int" else b.icmp_unsigned)(relation, x, y)
        is_first_nan = b.and_(b.fcmp_unordered("uno", x, x), b.fcmp_ordered("==", y, y))
        return b.or_(b.fcmp_ordered(relation, x, y), is_first_nan)

    def run(self, b: Assembler[np.ndarray], x: np.ndarray) -> tuple[np.ndarray, ...]:
        """The positions for a dense operand, with keys by an assembler of arrays."""
        elements = np.ascontiguousarray(x).reshape(self.outer, self.n, self.inner)
        keys = self.keys.of(b, elements.view(f"i{x.itemsize}")).view(f"u{x.itemsize}")
        return (np.argmin(keys, axis=1, keepdims=True).astype(self.index.numpy),)


@frozen
class Search:
    """Insertion positions of values in sorted lines: [lines, n] elements and [lines, count] values, all dense.

    Attributes:
        is_right: Whether a place is after equal elements, not before them.
        index: The dtype of places.
    """

    keys: Keys
    lines: int
    n: int
    count: int
    is_right: bool
    index: DType

    @classmethod
    def of(cls, op: SearchSorted, sorted: TensorType, v: TensorType) -> Search:
        *outer, n = sorted.static_shape
        values, lines = v.static_shape, prod(outer)
        count = values[-1] if outer else prod(values)
        return cls(Keys(sorted.dtype), lines, n, count, op.side == "right", op.index_dtype)

    def __str__(self) -> str:
        side = "after" if self.is_right else "before"
        sizes = f"{self.keys.dtype}[{self.lines}, {self.n}]"
        return f"search {sizes} for {self.count} values, places {side} equals: {self.index}"

    def run(self, b: Assembler[np.ndarray], sorted: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
        """The places in dense operands, with keys by an assembler of arrays."""
        arrays = [
            self.keys.of(b, np.ascontiguousarray(x).view(f"i{x.itemsize}")).view(f"u{x.itemsize}") for x in (sorted, v)
        ]
        lines, queries = arrays[0].reshape(self.lines, self.n), arrays[1].reshape(self.lines, self.count)
        side: Literal["left", "right"] = "right" if self.is_right else "left"
        places = [np.searchsorted(line, values, side) for line, values in zip(lines, queries, strict=True)]
        return (np.array(places).reshape(self.lines, self.count).astype(self.index.numpy),)
