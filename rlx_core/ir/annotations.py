"""Type checks of op attributes by the op's annotations: the kinds that an attribute may have, and its canonical form.

Annotations are the op's own declaration, so the verifier checks attributes against them. The classes that a file may name
because of them are in `declared_kinds.py`.
"""

from __future__ import annotations

import reprlib
import sys
import types
import typing
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, Union

import numpy as np

from rlx_core.errors import FormatError, nearest
from rlx_core.ir.dtypes import DType, dtype

MISFIT: Final = object()
"""Sentinel for a value that is not of the annotated kind."""


def annotations_of(cls: type[Any]) -> dict[str, Any]:
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
        # A name is looked up in the module first, then in the class, in the same order as by `typing`.
        return typing.get_type_hints(alone, dict(vars(cls)), vars(sys.modules.get(cls.__module__, typing)))
    except NameError as error:
        raise FormatError(
            f"{cls.__name__}: its annotations cannot be read ({error})",
            hint="import the types of attributes at run time, not under TYPE_CHECKING",
        ) from None


def exact_types(hint: Any) -> frozenset[type]:
    """Return the classes whose own instances need no conversion; most attributes are such."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        return frozenset().union(*map(exact_types, typing.get_args(hint)))
    kind = type(None) if hint is None else hint
    is_class = isinstance(kind, type) and typing.get_origin(kind) is None
    return frozenset({kind} if is_class and kind is not object else ())


def annotation(op: type[Any], attribute: str) -> Any:
    """Return the annotation of an attribute; `Any` where there is no annotation."""
    return annotations_of(op).get(attribute, Any)


def misfit(name: str, value: Any, hint: Any) -> str:
    """Return the error message for an attribute of another kind than its annotation."""
    return f"attribute {name} must be {_spelled(hint)}, not {reprlib.repr(value)} ({type(value).__name__})"


def nearest_word(value: Any, hint: Any) -> str | None:
    """Return a hint with the nearest option, where the annotation lists words."""
    options = [*typing.get_args(hint), *(a for part in typing.get_args(hint) for a in typing.get_args(part))]
    return nearest(value, [o for o in options if isinstance(o, str)]) if isinstance(value, str) else None


_KINDS = {
    int: "an integer",
    float: "a number",
    complex: "a number",
    bool: "True or False",
    str: "a text",
    type(None): "None",
}


def _spelled(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(map(_spelled, arguments))
    if origin is typing.Literal:
        return " or ".join(map(repr, arguments))
    if origin is tuple:
        is_uniform = arguments[1:] == (Ellipsis,)
        return (
            f"a sequence, each item {_spelled(arguments[0])}"
            if is_uniform
            else f"({', '.join(map(_spelled, arguments))})"
        )
    if isinstance(hint, type):
        return _KINDS.get(hint) or f"{'an' if hint.__name__[0] in 'AEIOU' else 'a'} {hint.__name__}"
    return str(hint).replace("typing.", "")


_Converter = Callable[[Any], Any]


@cache
def fitting(hint: Any) -> _Converter:
    """Return a function that converts an attribute value to the annotated kind, or returns `MISFIT` where that is not possible.

    NumPy's numbers become Python's, sequences tuples and names of dtypes dtypes. No value becomes a different one: a bool is
    no integer, a text no number, and an integer stays one where the annotation is a number, because it may be exact.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of([fitting(h) for h in arguments], exact_types(hint))
    if origin is typing.Literal:
        return lambda value: next((a for a in arguments if type(a) is type(value) and a == value), MISFIT)
    if origin is tuple:
        is_uniform = arguments[1:] == (Ellipsis,)
        return _each_is(arguments[0]) if is_uniform else _each(list(map(fitting, arguments)))
    if hint is None or hint is type(None):
        return lambda value: value if value is None else MISFIT
    if hint is DType:
        return lambda value: dtype(value) if isinstance(value, str | type | np.dtype | DType) else MISFIT
    if hint in _NUMBERS:
        return _number(_NUMBERS[hint])
    if not isinstance(hint, type) or origin is not None:
        return lambda value: value  # an annotation that cannot be checked on an instance
    return lambda value: value if isinstance(value, hint) else MISFIT


_NUMBERS: dict[Any, Any] = {int: int, float: (float, int), complex: (complex, float, int), bool: bool}


def _number(classes: Any) -> _Converter:
    def fit(value: Any) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
            if isinstance(value, np.generic):  # no Python equivalent (longdouble)
                value = float(value)
        if isinstance(value, bool) and classes is not bool:
            return MISFIT
        return value if isinstance(value, classes) else MISFIT

    return fit


def _one_of(converters: Sequence[_Converter], exact: frozenset[type]) -> _Converter:
    def fit(value: Any) -> Any:
        if type(value) in exact:
            return value
        return next((form for f in converters if (form := f(value)) is not MISFIT), MISFIT)

    return fit


def _each_is(hint: Any) -> _Converter:
    exact, fit_item = exact_types(hint), fitting(hint)

    def fit(value: Any) -> Any:
        if type(value) is tuple and exact.issuperset(map(type, value)):
            return value
        return _items(value, [fit_item] * len(value)) if isinstance(value, _SEQUENCES) else MISFIT

    return fit


def _each(converters: Sequence[_Converter]) -> _Converter:
    return lambda value: (
        _items(value, converters) if isinstance(value, _SEQUENCES) and len(value) == len(converters) else MISFIT
    )


_SEQUENCES = (tuple, list, range)


def _items(value: Sequence[Any], converters: Sequence[_Converter]) -> Any:
    items = tuple(f(v) for f, v in zip(converters, value, strict=True))
    return MISFIT if any(i is MISFIT for i in items) else items
