"""The arguments of a case as leaves, of which the floating-point ones can be replaced: what is differentiated by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import optree
from attrs import frozen

__all__ = ["Arguments", "is_inexact", "taken_apart", "widened"]


def is_inexact(dtype: Any) -> bool:
    """Whether a dtype of NumPy's, or of a peer by its name, is one of floats or of complex numbers."""
    return any(word in str(dtype) for word in ("float", "complex"))


@frozen(eq=False)
class Arguments:
    """Leaves, how they were put together, and which of them are floats."""

    leaves: list[Any]
    structure: Any
    smooth: tuple[int, ...]

    @property
    def points(self) -> list[Any]:
        """What there is to differentiate by."""
        return [self.leaves[i] for i in self.smooth]

    def at(self, points: Sequence[Any], leaves: Sequence[Any] | None = None) -> list[Any]:
        """The arguments with other floats, and with other leaves beside them if given."""
        merged = list(self.leaves if leaves is None else leaves)
        for i, point in zip(self.smooth, points, strict=True):
            merged[i] = point
        return self.whole(merged)

    def whole(self, leaves: Sequence[Any]) -> list[Any]:
        return list(optree.tree_unflatten(self.structure, leaves))


def taken_apart(args: Sequence[Any]) -> Arguments:
    """The leaves of the arguments, which are NumPy arrays."""
    leaves, structure = optree.tree_flatten(list(args))
    return Arguments(leaves, structure, tuple(i for i, x in enumerate(leaves) if is_inexact(x.dtype)))


def widened(tree: Any) -> Any:
    """Floating-point arrays in float64, or complex128, with the same values."""
    return optree.tree_map(
        lambda x: x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) if is_inexact(x.dtype) else x, tree
    )
