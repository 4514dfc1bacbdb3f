"""Leaves of parameters, gradients and states: mapped together, in the dtype that optimisers compute in.

16-bit floats are computed with, and remembered, as f32: an average that moves by a thousandth of its distance would not move
at all in bf16, and the square of a small gradient is 0 in f16. Every other float keeps its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

import rlx_core as rlx
from rlx_core.errors import ConfigError, DtypeError, Fact, ShapeError
from rlx_core.ir.dtypes import DType, bf16, dtype, f16, f32
from rlx_core.ops.linalg import operand
from rlx_core.trees.flatten import flatten, same_structure

__all__ = ["chosen", "each", "leaves_over", "next_count", "sum_of_squares", "wide", "zeros_like"]


def wide(x: Any, *, name: str = "a leaf") -> Any:
    """A leaf as an array of the dtype that is computed in: f32 for f16 and bf16, otherwise its own.

    Raises:
        DtypeError: It is no real floating-point array.
    """
    array = operand(x)
    found = dtype(array.dtype)
    if not found.is_float:
        raise DtypeError(
            f"optim: {name} is {found}, and only real floating-point parameters are trained",
            hint="keep other arrays outside of the parameters, or name those to train with rlx.optim.masked",
        )
    return rlx.astype(array, f32, copy=False) if found in (f16, bf16) else array


def each(what: str, function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """`function` of the leaves of trees of one structure, each made `wide`; `None` is no leaf.

    Raises:
        ShapeError: The trees have different structures; the message begins with `what`.
        DtypeError: A leaf is no real floating-point array.
    """
    leaves, structure = flatten(tree)
    columns = [leaves]
    for other in rest:
        found, its_structure = flatten(other)
        same_structure(what, structure, its_structure)
        columns.append(found)
    names = [name.lstrip(".") or "the array" for name in structure.names]
    wides = [[wide(x, name=n) for n, x in zip(names, column, strict=True)] for column in columns]
    return structure.unflatten([function(*row) for row in zip(*wides, strict=True)])


def zeros_like(tree: Any, of: DType | str | None = None) -> Any:
    """Zeros of the shapes of a tree's leaves, each in the dtype that is computed in, or in `of`."""
    return each("init", lambda x: rlx.zeros(x.shape, dtype=dtype(x.dtype if of is None else of)), tree)


def chosen(predicate: Any, yes: Any, no: Any) -> Any:
    """One of two trees of the same types, leaf by leaf, as a predicate says that is known when the program runs."""
    leaves, structure = flatten(yes)
    others, its_structure = flatten(no)
    same_structure("optim: the state", structure, its_structure)
    return structure.unflatten([rlx.where(predicate, a, b) for a, b in zip(leaves, others, strict=True)])


def next_count(count: Any) -> Any:
    """One more, or the largest number of the type for ever."""
    return rlx.minimum(count, np.int32(2**31 - 2)) + np.int32(1)


def sum_of_squares(tree: Any) -> Any:
    """The sum of the squares of all elements, in the widest dtype that is computed in; 0 for no leaves."""
    sums = [rlx.sum(rlx.square(wide(x))) for x in flatten(tree)[0]]
    total: Any = sums[0] if sums else np.float32(0)
    for one in sums[1:]:
        total = total + one
    return total


def leaves_over(what: str, prefix: Any, tree: Any, kinds: type[Any] | tuple[type[Any], ...]) -> list[Any]:
    """What `prefix` says of each leaf of `tree`: a tree whose leaves stand for whole subtrees, or a function that makes one.

    Raises:
        ShapeError: It does not lie over `tree`.
        ConfigError: A leaf of it is of another kind.
    """
    said = prefix(tree) if callable(prefix) else prefix
    try:
        # `None` is a leaf among what is said and no leaf of the tree, so it is one in both here and dropped after.
        found: Sequence[Any] = optree.broadcast_prefix(said, tree, none_is_leaf=True)
    except ValueError:
        shape = optree.tree_structure(said, none_is_leaf=True)
        raise ShapeError(f"{what}: {shape} does not lie over the structure {optree.tree_structure(tree)}") from None
    leaves = optree.tree_leaves(tree, none_is_leaf=True)
    kept = [f for f, leaf in zip(found, leaves, strict=True) if leaf is not None]
    for value in kept:
        if not isinstance(value, kinds):
            raise ConfigError(
                f"{what}: {value!r} is not what is said of a leaf",
                Fact("expected", " or ".join(k.__name__ for k in (kinds if isinstance(kinds, tuple) else (kinds,)))),
            )
    return kept
