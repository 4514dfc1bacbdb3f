"""Checks of an op against its annotations: attributes of another kind, and the records that may be read back.

Annotations (`annotations.py`) are the only place from which a file can name a class.
"""

from __future__ import annotations

import enum
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import attrs

from rlx_core.ir.annotations import MISFIT, annotation, annotations_of, fitting, misfit
from rlx_core.ir.dims import Expr
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Graph, Literal
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType

_WITH_A_FORM = (DType, Expr, Graph, Literal, Op, TensorType)


def kind_faults(op: Op) -> Iterator[str]:
    """One line for each attribute whose value is not of the annotated kind."""
    for a in attrs.fields(type(op)):
        hint = annotation(type(op), a.name)
        value = getattr(op, a.name)
        if fitting(hint)(value) is MISFIT:
            yield misfit(a.name, value, hint)


def record_classes(op: type[Any]) -> Mapping[str, type[Any]]:
    """The attrs records and enums that an op's annotations name, also inside one another: the only ones read back.

    Graphs, ops, data, types and dims are not among them: they have separate forms, and an attribute cannot
    create their components.
    """
    return _find_record_classes(op)  # type: ignore[arg-type]  # a class is hashable


@cache
def _find_record_classes(op: type[Any]) -> Mapping[str, type[Any]]:
    classes: dict[str, type[Any]] = {}
    todo: list[Any] = list(annotations_of(op).values())
    while todo:
        hint = todo.pop()
        todo += typing.get_args(hint)
        is_named = isinstance(hint, type) and (attrs.has(hint) or issubclass(hint, enum.Enum))
        if is_named and not issubclass(hint, _WITH_A_FORM) and hint.__name__ not in classes:
            classes[hint.__name__] = hint
            todo += annotations_of(hint).values() if attrs.has(hint) else []
    return classes
