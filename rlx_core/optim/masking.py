"""Transformations of a subset of the parameters, and separate transformations for several subsets.

Leaves hidden from a transformation are `None` in the trees that it gets, which is not a leaf: so any transformation can be
masked, and its state has the structure of the parameters with `None` at the other leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rlx_core.errors import ConfigError, nearest
from rlx_core.hints.keywords import checked_call
from rlx_core.optim.transformation import GradientTransformation, Transformation, transformation
from rlx_core.optim.trees import leaves_over
from rlx_core.trees.flatten import flatten, same_structure

Mask = Any | Callable[[Any], Any]
"""A tree of booleans over the parameters, each of which may apply to a subtree, or a function that returns such a tree."""


class MaskedState(NamedTuple):
    """The state of the inner transformation."""

    inner_state: Any


class MultiTransformState(NamedTuple):
    """Label → state of its transformation."""

    inner_states: dict[str, Any]


@checked_call
def masked(inner: Transformation, mask: Mask) -> GradientTransformation:
    """`inner` for the leaves that `mask` selects; the gradients of other leaves are unchanged.

    Raises (when it is used):
        ShapeError: The mask does not match the structure of the parameters.
        ConfigError: A leaf of it is not True or False.
    """
    part = transformation("masked", inner)

    def said(tree: Any) -> list[bool]:
        return leaves_over("masked", mask, tree, bool)

    def init(params: Any) -> MaskedState:
        return MaskedState(part.init(_only(params, said(params))))

    def update(grads: Any, state: MaskedState, params: Any = None) -> tuple[Any, MaskedState]:
        keep = said(grads if params is None else params)
        known = None if params is None else _only(params, keep)
        updates, inner_state = part.update(_only(grads, keep), state.inner_state, known)
        return _merged("masked", grads, keep, updates), MaskedState(inner_state)

    return GradientTransformation(init, update)


@checked_call
def multi_transform(transforms: Mapping[str, Transformation], param_labels: Any) -> GradientTransformation:
    """A transformation for each group of parameters.

    Args:
        transforms: The transformations by label.
        param_labels: A tree of labels over the parameters, each of which may apply to a subtree, or a function that returns
            one.

    Raises (when it is used):
        ShapeError: The labels do not match the structure of the parameters.
        ConfigError: A label has no transformation.
    """
    parts = {label: transformation(f"multi_transform: {label}", t) for label, t in transforms.items()}

    def labels(tree: Any) -> list[str]:
        result = leaves_over("multi_transform", param_labels, tree, str)
        for label in result:
            if label not in parts:
                raise ConfigError(
                    f"multi_transform: there is no transformation for the label {label!r}",
                    hint=nearest(label, list(parts)),
                )
        return result

    def init(params: Any) -> MultiTransformState:
        leaf_labels = labels(params)
        return MultiTransformState(
            {n: part.init(_only(params, [x == n for x in leaf_labels])) for n, part in parts.items()}
        )

    def update(grads: Any, state: MultiTransformState, params: Any = None) -> tuple[Any, MultiTransformState]:
        leaf_labels = labels(grads if params is None else params)
        states, updates = {}, grads
        for label, part in parts.items():
            keep = [x == label for x in leaf_labels]
            known = None if params is None else _only(params, keep)
            updated, states[label] = part.update(_only(grads, keep), state.inner_states[label], known)
            updates = _merged("multi_transform", updates, keep, updated)
        return updates, MultiTransformState(states)

    return GradientTransformation(init, update)


def _only(tree: Any, keep: Sequence[bool]) -> Any:
    """Return the tree with `None` at hidden leaves."""
    leaves, structure = flatten(tree)
    return structure.unflatten([leaf if k else None for leaf, k in zip(leaves, keep, strict=True)])


def _merged(what: str, tree: Any, keep: Sequence[bool], part: Any) -> Any:
    """Return the tree with its leaves of a subset replaced."""
    leaves, structure = flatten(tree)
    part_leaves, its_structure = flatten(part)
    same_structure(what, flatten(_only(tree, keep))[1], its_structure)
    others = iter(part_leaves)
    return structure.unflatten([next(others) if k else leaf for leaf, k in zip(leaves, keep, strict=True)])
