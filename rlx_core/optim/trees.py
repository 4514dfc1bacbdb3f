"""Leaves of parameters, gradients and states: mapped together, in the dtype of the computation.

16-bit floats are computed with, and stored, as f32: an average that moves by a thousandth of its distance would not move at all
in bf16, and the square of a small gradient is 0 in f16. Every other float keeps its dtype.
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


def wide(x: Any, *, name: str = "a leaf") -> Any:
    """Return a leaf as an array of the dtype of the computation: f32 for f16 and bf16, otherwise unchanged.

    Raises:
        DtypeError: It is not a real floating-point array.
    """
    array = operand(x)
    array_dtype = dtype(array.dtype)
    if not array_dtype.is_float:
        raise DtypeError(
            f"optim: {name} is {array_dtype}, and only real floating-point parameters are trained",
            hint="keep other arrays outside of the parameters, or name those to train with rlx.optim.masked",
        )
    return rlx.astype(array, f32, copy=False) if array_dtype in (f16, bf16) else array


def each(what: str, function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Map `function` over the leaves of trees of one structure, each converted by `wide`; `None` is not a leaf.

    Raises:
        ShapeError: The trees have different structures; the message begins with `what`.
        DtypeError: A leaf is not a real floating-point array.
    """
    leaves, structure = flatten(tree)
    columns = [leaves]
    for other in others:
        other_leaves, its_structure = flatten(other)
        same_structure(what, structure, its_structure)
        columns.append(other_leaves)
    names = [name.lstrip(".") or "the array" for name in structure.names]
    wides = [[wide(x, name=n) for n, x in zip(names, column, strict=True)] for column in columns]
    return structure.unflatten([function(*row) for row in zip(*wides, strict=True)])


def zeros_like(tree: Any, target: DType | str | None = None) -> Any:
    """Return zeros of the shapes of a tree's leaves, each in the dtype of the computation, or in `target`."""
    return each("init", lambda x: rlx.zeros(x.shape, dtype=dtype(x.dtype if target is None else target)), tree)


def chosen(predicate: Any, yes: Any, no: Any) -> Any:
    """Select one of two trees of the same types, leaf by leaf, by a predicate that is known at run time."""
    leaves, structure = flatten(yes)
    others, its_structure = flatten(no)
    same_structure("optim: the state", structure, its_structure)
    return structure.unflatten([rlx.where(predicate, a, b) for a, b in zip(leaves, others, strict=True)])


def next_count(count: Any) -> Any:
    """Return `count + 1`, saturating at the largest number of the type."""
    return rlx.minimum(count, np.int32(2**31 - 2)) + np.int32(1)


def sum_of_squares(tree: Any) -> Any:
    """Return the sum of the squares of all elements, in the widest dtype of the computation; 0 without leaves."""
    sums = [rlx.sum(rlx.square(wide(x))) for x in flatten(tree)[0]]
    total: Any = sums[0] if sums else np.float32(0)
    for one in sums[1:]:
        total = total + one
    return total


def leaves_over(what: str, prefix: Any, tree: Any, kinds: type[Any] | tuple[type[Any], ...]) -> list[Any]:
    """Return the value of `prefix`, or of `prefix(tree)`, for each leaf of `tree`; each of its leaves applies to a subtree.

    Raises:
        ShapeError: It does not match the structure of `tree`.
        ConfigError: A leaf of it is of another kind.
    """
    values = prefix(tree) if callable(prefix) else prefix
    try:
        # `None` is a leaf of the prefix but not of the tree, so it is a leaf of both here and dropped afterwards.
        broadcast: Sequence[Any] = optree.broadcast_prefix(values, tree, none_is_leaf=True)
    except ValueError:
        shape = optree.tree_structure(values, none_is_leaf=True)
        raise ShapeError(f"{what}: {shape} does not lie over the structure {optree.tree_structure(tree)}") from None
    leaves = optree.tree_leaves(tree, none_is_leaf=True)
    result = [f for f, leaf in zip(broadcast, leaves, strict=True) if leaf is not None]
    for value in result:
        if not isinstance(value, kinds):
            raise ConfigError(
                f"{what}: {value!r} is not what is said of a leaf",
                Fact("expected", " or ".join(k.__name__ for k in (kinds if isinstance(kinds, tuple) else (kinds,)))),
            )
    return result
