"""Containers that JAX knows and rlx does not: classes that libraries for JAX registered as pytrees (Equinox, Flax).

Each becomes a pytree of rlx when a model first has it, by the functions that it is registered with at JAX, so that parameters,
inputs and results keep their classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import optree

import rlx_core as rlx
from rlx_core.errors import ConfigError

KNOWN = (dict, list, tuple, type(None))
"""Containers of both."""


def register_nodes(tree: Any) -> None:
    """Make the classes of all nodes of a pytree of JAX pytrees of rlx."""
    for node in nodes_of(tree):
        if not isinstance(node, KNOWN) and optree.tree_is_leaf(node):
            register_class(type(node))


def nodes_of(tree: Any) -> list[Any]:
    """The containers in a pytree of JAX, outermost first."""
    result: list[Any] = []
    left = [tree]
    while left:
        node = left.pop()
        if not jax.tree_util.all_leaves([node]):
            result.append(node)
            left += children_of(node)
    return result


def children_of(node: Any) -> list[Any]:
    return jax.tree_util.tree_leaves(node, is_leaf=lambda each: each is not node)


def register_class(cls: type[Any]) -> None:
    """Make a class that JAX knows a pytree of rlx."""

    def flatten(node: Any) -> tuple[list[Any], Any, list[str]]:
        result, structure = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda each: each is not node)
        names = [jax.tree_util.keystr(path, simple=True) for path, _ in result]
        return [child for _, child in result], structure, names

    def unflatten(structure: Any, children: Any) -> Any:
        return jax.tree_util.tree_unflatten(structure, children)

    try:
        rlx.register_pytree_node(cls, flatten, unflatten)
    except ConfigError:
        if optree.tree_is_leaf(object.__new__(cls)):  # else another thread was first
            raise


class FixedLeaves:
    """The leaves of an argument that are part of the program, because they are no numbers: functions, texts, flags.

    Attributes:
        leaves: All of them in JAX's order; `None` in the place of an array.
    """

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.leaves = leaves

    def whole(self, tree: Any) -> Any:
        """Return an argument from its arrays: `tree` is a result of `parted`, or has other leaves in place of its arrays."""
        result, structure = jax.tree_util.tree_flatten(tree, is_leaf=lambda each: each is None)
        leaves = [arguments if fixed is None else fixed for arguments, fixed in zip(result, self.leaves, strict=True)]
        return jax.tree_util.tree_unflatten(structure, leaves)


def parted(argument: Any) -> tuple[Any, FixedLeaves]:
    """Return an argument with `None` in place of leaves that are no numbers, and these leaves."""
    leaves, structure = jax.tree_util.tree_flatten(argument, is_leaf=lambda each: each is None)
    arrays = [leaf if is_number(leaf) else None for leaf in leaves]
    fixed = [None if is_number(leaf) else leaf for leaf in leaves]
    return jax.tree_util.tree_unflatten(structure, arrays), FixedLeaves(fixed)


def is_number(leaf: Any) -> bool:
    """Return whether a leaf can be an argument of a compiled program and is no flag that Python code branches on."""
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | int | float | complex) and not isinstance(leaf, bool)
