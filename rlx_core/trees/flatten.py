"""Nested containers of arrays (pytrees), flattened to named leaves and rebuilt.

Leaves are named by their place: argument `params` holding `{"w1": ...}` gives the leaf `params.w1`. These names are how
inputs and parameters are addressed everywhere after tracing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import optree

from rlx_core.errors import AxisError, Fact, ShapeError, TraceError, WrongInputCountError
from rlx_core.system.records import frozen


@frozen
class Tree:
    """The structure of a pytree and the names of its leaves."""

    structure: optree.PyTreeSpec
    names: tuple[str, ...]

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The pytree with these leaves."""
        return optree.tree_unflatten(self.structure, leaves)

    def packer(self) -> Callable[[tuple[Any, ...]], Any]:
        """Return `unflatten` for a tuple of leaves, made for many calls; one leaf and a tuple of leaves have a fast path."""
        if self.structure.is_leaf():
            return itemgetter(0)
        if self.structure.type is tuple and all(child.is_leaf() for child in self.structure.children()):
            return tuple  # the tuple of leaves itself
        return self.unflatten


def flatten(tree: Any, prefix: str = "") -> tuple[list[Any], Tree]:
    """The leaves of a pytree in a fixed order, and its structure."""
    paths, leaves, structure = _with_paths(tree)
    return list(leaves), Tree(structure, tuple(".".join([prefix, *map(str, path)]) for path in paths))


def map_leaves(function: Callable[..., Any], tree: Any, *, none_is_leaf: bool = False) -> Any:
    """A pytree with `function(leaf)` for each leaf.

    Raises:
        TraceError: Containers are nested deeper than optree goes, or one contains itself.
    """
    try:
        leaves, structure = optree.tree_flatten(tree, none_is_leaf=none_is_leaf)
    except RecursionError:
        raise _too_deep() from None
    return optree.tree_unflatten(structure, map(function, leaves))


def _with_paths(tree: Any) -> tuple[list[tuple[Any, ...]], list[Any], optree.PyTreeSpec]:
    """The places of the leaves, the leaves, the structure.

    Raises:
        TraceError: Containers are nested deeper than optree goes, or one contains itself.
    """
    try:
        return optree.tree_flatten_with_path(tree)
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> TraceError:
    return TraceError(
        f"pytree: containers are nested more than {optree.MAX_RECURSION_DEPTH} deep, or one contains itself",
        hint="pass a list of the leaves: how long it is has no limit",
    )


def flatten_arguments(named: Mapping[str, Any]) -> tuple[list[Any], Tree]:
    """The leaves of a call's arguments, in the order of the signature, each name starting with its parameter's."""
    parameters = list(named)
    values: Any = tuple(named.values())
    paths, leaves, structure = _with_paths(values)
    names = (".".join([parameters[path[0]], *map(str, path[1:])]) for path in paths)
    return list(leaves), Tree(structure, tuple(names))


def bind_arguments(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by parameter name, in order; those of `*args` and of unnamed functions are numbered.

    Raises:
        TraceError: It is not a function.
        WrongInputCountError: The call does not fit the function's signature; the message is Python's own.
    """
    expect_function("trace", function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-ins have no signature
        return {f"arg{i}": a for i, a in enumerate(args)} | dict(kwargs)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        name = function_name(function)
        raise WrongInputCountError(f"{name}: {error}", Fact("signature", f"{name}{signature}")) from None
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named.update({f"{name}{i}": a for i, a in enumerate(value)})
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    return named


def expect_function(what: str, function: object) -> None:
    """Require a callable; `what` is the caller, for the error.

    Raises:
        TraceError: It cannot.
    """
    if not callable(function):
        raise TraceError(
            f"{what}: takes a function, not {type(function).__name__}",
            hint="pass the function itself, and its arguments where it is called: rlx.grad(f)(x)",
        )


def function_name(function: Callable[..., Any]) -> str:
    """A name for the graph of a function."""
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "lambda"


def single(tree: Tree) -> optree.PyTreeSpec:
    """The structure of the only element of a one-element tuple of pytrees."""
    (child,) = tree.structure.children()
    return child


def same_structure(what: str, expected: Tree, actual: Tree) -> None:
    """Require two pytrees to have the same structure.

    Raises:
        ShapeError: They differ; the first differing leaves are named.
    """
    if expected.structure == actual.structure:
        return
    missing = [n for n in expected.names if n not in actual.names]
    extra = [n for n in actual.names if n not in expected.names]
    counts = actual.structure.num_leaves, expected.structure.num_leaves
    raise ShapeError(
        f"{what}: the arguments have another structure"
        + (f" ({counts[0]} leaves, not {counts[1]})" if counts[0] != counts[1] else ""),
        *([Fact("missing", ", ".join(missing[:5]))] if missing else []),
        *([Fact("extra", ", ".join(extra[:5]))] if extra else []),
        *([] if missing or extra else [Fact("wanted", expected.structure), Fact("found", actual.structure)]),
    )


def spread(what: str, axes: Any, tree: Any) -> list[int | None]:
    """Return an axis for each leaf of `tree`: `axes` is one for all, or a pytree with one leaf for each subtree.

    Raises:
        ShapeError: It is a pytree, and does not lie over `tree`.
        AxisError: A leaf of it is neither an axis nor `None`.
    """
    try:
        # `None` is a leaf among axes and no leaf of a tree, so it is a leaf for both here and dropped from the tree's after.
        spread_axes = optree.broadcast_prefix(axes, tree, none_is_leaf=True)
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        shape = optree.tree_structure(axes, none_is_leaf=True)
        raise ShapeError(f"{what}: {shape} does not lie over the structure {optree.tree_structure(tree)}") from None
    wrong = [a for a in spread_axes if not (a is None or type(a) is int)]
    if wrong:
        raise AxisError(f"{what}: {wrong[0]!r} is neither an axis nor None")
    leaves = optree.tree_leaves(tree, none_is_leaf=True)
    return [a for a, leaf in zip(spread_axes, leaves, strict=True) if leaf is not None]
