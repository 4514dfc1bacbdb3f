"""Mapping of a step's arrays to matrices of cuBLASLt: which arrays need a copy, and how many calls compute the step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as pairs
from typing import Final

from attrs import evolve, frozen

from rlx_core.codegen.layout import merged
from rlx_core.codegen.places import WIDEST, Layout, Place
from rlx_core.ir.dtypes import bf16, f16, f32, f64
from rlx_cuda import cublaslt
from rlx_cuda.cublaslt import Matrix, Product
from rlx_cuda.epilogues import AUX_MULTIPLE, Epilogue

NUMBERS: Final = {f16: cublaslt.R_16F, bf16: cublaslt.R_16BF, f32: cublaslt.R_32F, f64: cublaslt.R_64F}
"""The library's number of each dtype."""


@frozen
class Part:
    """An array of a product.

    Attributes:
        role: The field's name in `Addresses`.
        number: Index into the step's operands followed by its results.
        place: The layout.
        is_written: Whether the array is a result.
        is_apart: Whether the library does not support the layout: a dense copy is multiplied, or is written and then copied.
    """

    role: str
    number: int
    place: Place
    is_written: bool = False
    is_apart: bool = False

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides in elements that the library receives; 0 along axes of one element."""
        place = Place.dense(self.place.type) if self.is_apart else self.place
        size = place.type.dtype.itemsize
        return tuple(0 if d == 1 else s // size for d, s in zip(place.type.static_shape, place.strides, strict=True))

    @property
    def is_taken(self) -> bool:
        """True if the library supports the array's layout."""
        place, size = self.place, self.place.type.dtype.itemsize
        if self.is_apart:
            return True
        if any(s < 0 or s % size for s in place.strides):
            return False
        if self.role == "bias":
            return place.is_dense and place.alignment == WIDEST
        if self.role == "aux":
            return place.is_dense and place.alignment == WIDEST and place.type.static_shape[-1] % AUX_MULTIPLE == 0
        return True

    def leading(self, rank: int) -> tuple[int, ...]:
        """Return the strides along the result's axes except the last; 0 along axes on which the array does not depend."""
        *batch, rows, _ = (*(0,) * (rank - self.place.type.rank), *self.strides)
        return (*batch, 0 if self.role == "a" else rows)


@frozen
class Products:
    """A step as one or more calls of the library.

    Attributes:
        product: The product that is computed, once for each element of `rounds`.
        parts: The arrays.
        rounds: For each call, the byte offset of each part from its first element.
    """

    product: Product
    parts: tuple[Part, ...]
    rounds: tuple[tuple[int, ...], ...]


def products_of(layout: Layout, epilogue: Epilogue, *, tf32: bool = False) -> Products:
    """Return the library's calls for a step that multiplies its first two operands.

    Args:
        tf32: Whether factors of f32 are rounded to ten bits of mantissa.
    """
    places, first_result = (*layout.operands, *layout.results), len(layout.operands)
    # The library's B is the first factor and its A the second, because its matrices are column-major.
    numbers = {"b": 0, "a": 1, "d": epilogue.result, "c": epilogue.added, "bias": epilogue.bias, "aux": epilogue.aux}
    parts = []
    for role, number in numbers.items():
        if number is not None:
            place = places[number]
            assert place is not None, "it was read"
            part = Part(role, number, place, is_written=number >= first_result)
            parts.append(part if part.is_taken else evolve(part, is_apart=True))
    return _placed(parts, epilogue, tf32)


def _placed(parts: Sequence[Part], epilogue: Epilogue, tf32: bool) -> Products:
    """Return the products, with dense copies of the parts whose layouts do not go together."""

    def with_copy(copied: Part) -> Products:
        assert not copied.is_apart, "what is dense can be taken"
        return _placed([evolve(p, is_apart=True) if p is copied else p for p in parts], epilogue, tf32)

    by_role = {part.role: part for part in parts}
    x, d = by_role["b"].place.type, by_role["d"].place.type
    *leading, columns = d.static_shape
    depth = x.static_shape[-1]
    matrices = [part for part in parts if part.role != "bias"]
    axes = [(size, tuple(steps)) for size, *steps in merged(leading, *(part.leading(d.rank) for part in matrices))]
    # The rows are the last axis of the merged axes, if the second factor does not depend on it.
    second = [part.role for part in matrices].index("a")
    rows, steps = axes.pop() if axes and axes[-1][1][second] == 0 else (1, (0,) * len(matrices))
    batch, distances = axes.pop() if axes else (1, (0,) * len(matrices))
    if batch > 1 and epilogue.number == cublaslt.EPILOGUE_DGELU_BGRAD:  # the sums cover all rows in one call
        return with_copy(next(part for part in parts if not part.is_apart and part.role not in ("a", "bias")))
    described: dict[str, Matrix] = {}
    for part, step, distance in zip(matrices, steps, distances, strict=True):
        last, before = part.strides[-1], part.strides[-2]
        height, width = (depth, columns) if part.role == "a" else (rows, depth if part.role == "b" else columns)
        oriented = _oriented(height, width, before if part.role == "a" else step, last)
        if oriented is None or (oriented[1] and part.role not in ("a", "b")):
            return with_copy(part)
        ld, is_transposed = oriented
        size = (height, width) if is_transposed else (width, height)
        described[part.role] = Matrix(NUMBERS[part.place.type.dtype], *size, ld, is_transposed, batch, distance)
    is_wide = x.dtype is f64
    compute = cublaslt.COMPUTE_64F if is_wide else cublaslt.COMPUTE_32F
    product = Product(
        compute=cublaslt.COMPUTE_32F_FAST_TF32 if tf32 and x.dtype is f32 else compute,
        scale=cublaslt.R_64F if is_wide else cublaslt.R_32F,
        a=described["a"],
        b=described["b"],
        d=described["d"],
        c=described.get("c"),
        epilogue=epilogue.number,
        aux=(described["aux"].ld, described["aux"].stride) if "aux" in described else None,
    )
    walks = [[] if part.role == "bias" else [a[1][matrices.index(part)] for a in axes] for part in parts]
    sizes = [part.place.type.dtype.itemsize for part in parts]
    rounds = tuple(
        tuple(
            size * sum(i * s for i, s in zip(indices, walk, strict=False))
            for size, walk in zip(sizes, walks, strict=True)
        )
        for indices in pairs(*(range(count) for count, _ in axes))
    )
    return Products(product, tuple(parts), rounds)


def _oriented(height: int, width: int, down: int, along: int) -> tuple[int, bool] | None:
    """Return the leading dimension, and whether the matrix is transposed: the library's columns are the rows of the matrix, or
    its columns if transposed. Return `None` if neither rows nor columns are contiguous.

    Args:
        down, along: Strides in elements from one row to the next, and from one column to the next.
    """
    if width == 1 or along == 1:
        ld = down if height > 1 else width
        if ld >= width:
            return ld, False
    if height == 1 or down == 1:
        ld = along if width > 1 else height
        if ld >= height:
            return ld, True
    return None
