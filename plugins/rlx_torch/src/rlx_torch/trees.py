"""Torch's containers as plain ones: what rlx takes and returns are dicts, lists and tuples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils._pytree import TreeSpec


def plain(spec: TreeSpec, values: Sequence[Any]) -> Any:
    """Leaves in the structure of a spec, in which any class that holds names is a dict, and any other a tuple."""
    return _plain(spec, iter(values))


def _plain(spec: TreeSpec, values: Iterator[Any]) -> Any:
    if spec.is_leaf():
        return next(values)
    children = [_plain(child, values) for child in spec.children()]
    if spec.type is list:
        return children
    names = _names(spec)
    return tuple(children) if names is None else dict(zip(names, children, strict=True))


def leaves(spec: TreeSpec, value: Any) -> list[Any]:
    """Return the leaves of the result of `plain` for the same spec, in torch's order."""
    if spec.is_leaf():
        return [value]
    names = _names(spec)
    children = spec.children()
    parts = value if names is None else [value[name] for name in names]
    return [leaf for child, part in zip(children, parts, strict=True) for leaf in leaves(child, part)]


def _names(spec: TreeSpec) -> list[str] | None:
    """Return the names of the children of a container; `None` if they are numbered."""
    values = spec.context
    if (
        isinstance(values, tuple | list) and len(values) == 2 and isinstance(values[1], list)
    ):  # defaultdict, OrderedDict
        values = values[1]
    return list(values) if isinstance(values, list) and len(values) == spec.num_children else None
