"""What an op's annotations say about its attributes: which kinds they may have, and which records may be read back.

Annotations are the op's own declaration, so they are what the verifier holds attributes against, and the only place from
which a file can name a class.
"""

from __future__ import annotations

import enum
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Union

import attrs
import numpy as np

from rlx_core.errors import FormatError
from rlx_core.ir.dims import Expr
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Graph, Literal
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType

__all__ = ["kind_faults", "record_classes"]


_WITH_A_FORM = (DType, Expr, Graph, Literal, Op, TensorType)


def _annotations(cls: type[Any]) -> dict[str, Any]:
    """The annotations of a class and its bases, evaluated."""
    return _read_annotations(cls)  # type: ignore[arg-type]  # a class is hashable, whatever its instances are


@cache
def _read_annotations(cls: type[Any]) -> dict[str, Any]:
    return {name: hint for base in reversed(cls.__mro__) for name, hint in _own_annotations(base).items()}


@cache
def _own_annotations(cls: type[Any]) -> dict[str, Any]:
    """The annotations of one class: those of `Op` itself, which are many, are evaluated once for all ops."""
    written = vars(cls).get("__annotations__", {})
    alone = type(cls.__name__, (), {"__annotations__": written, "__module__": cls.__module__})
    try:
        # A name means what it means in the module, else what it means in the class: `typing` asks them in this order too.
        return typing.get_type_hints(alone, dict(vars(cls)), vars(sys.modules.get(cls.__module__, typing)))
    except NameError as error:
        raise FormatError(
            f"{cls.__name__}: its annotations cannot be read ({error})",
            hint="import the types of attributes at run time, not under TYPE_CHECKING",
        ) from None


def record_classes(op: type[Any]) -> Mapping[str, type[Any]]:
    """The attrs records and enums that an op's annotations name, also inside one another: the only ones read back.

    Graphs, ops, data, types and dims are not among them: they have forms of their own, and what they are made of is no
    attribute's to make.
    """
    return _find_record_classes(op)  # type: ignore[arg-type]  # a class is hashable


@cache
def _find_record_classes(op: type[Any]) -> Mapping[str, type[Any]]:
    found: dict[str, type[Any]] = {}
    todo: list[Any] = list(_annotations(op).values())
    while todo:
        hint = todo.pop()
        todo += typing.get_args(hint)
        is_named = isinstance(hint, type) and (attrs.has(hint) or issubclass(hint, enum.Enum))
        if is_named and not issubclass(hint, _WITH_A_FORM) and hint.__name__ not in found:
            found[hint.__name__] = hint
            todo += _annotations(hint).values() if attrs.has(hint) else []
    return found


def kind_faults(op: Op) -> Iterator[str]:
    """One line for each attribute whose value is not of the annotated kind."""
    hints = _annotations(type(op))
    for a in attrs.fields(type(op)):
        value = getattr(op, a.name)
        hint = hints.get(a.name, Any)
        if not _fits(value, hint):
            yield f"attribute {a.name} must be {_spelled(hint)}, not {str(value)[:60]!r} ({type(value).__name__})"


def _spelled(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, h) for h in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and _items_fit(value, arguments)
    if hint is None or hint is type(None):
        return value is None
    if not isinstance(hint, type) or origin is not None:
        return True  # a kind of annotation that says nothing checkable about an instance
    if hint is float:
        return isinstance(value, float | int | np.floating | np.integer)
    if hint is complex:
        return isinstance(value, complex | float | int | np.number)
    if hint is int:
        return isinstance(value, int | np.integer)
    return isinstance(value, hint)


def _items_fit(value: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(_fits(v, hints[0]) for v in value)
    return len(value) == len(hints) and all(_fits(v, h) for v, h in zip(value, hints, strict=True))
