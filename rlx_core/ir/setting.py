"""Setting the attributes of an op: each is converted and checked where it is written, and every refusal names the op.

An attribute's annotation determines its kind (`annotations.py`); converters and validators of the op add further checks, and
see only values of that kind.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import attrs

from rlx_core.errors import ConfigError, RlxError, UnknownNameError, WrongInputCountError, nearest
from rlx_core.ir.annotations import MISFIT, annotation, exact_types, fitting, misfit, nearest_word

_REFUSALS = (TypeError, ValueError, OverflowError, AttributeError, KeyError, IndexError)
"""Exceptions of converters and validators that do not use rlx's errors."""

_Init = TypeVar("_Init", bound=Callable[..., None])


class _ToKind:
    """The converter of an attribute: the op's own, and then to the kind that the annotation names."""

    __signature__ = inspect.Signature()  # attrs reads it for each attribute of each op, and computing it is slow

    def __init__(self, op: type[Any], name: str, converter: Callable[[Any], Any] | None) -> None:
        self.op, self.name, self.own = op, name, converter
        self.exact: frozenset[type] = frozenset()
        self.hint: Any = None
        self.fit: Callable[[Any], Any] = self._first

    def __call__(self, value: Any) -> Any:
        if self.own is not None:
            value = self._by_own(value)
        elif type(value) in self.exact:
            return value
        return self._fitted(value)

    def _first(self, value: Any) -> Any:
        # Annotations name graphs and types, which contain ops; so they are read when the first op is made.
        self.hint = annotation(self.op, self.name)
        self.exact, self.fit = exact_types(self.hint), fitting(self.hint)
        return self.fit(value)

    def _by_own(self, value: Any) -> Any:
        if self.own is None:
            return value
        try:
            return self.own(value)
        except RlxError:
            raise
        except _REFUSALS as error:
            self._fitted(value)  # the annotation gives a clearer message
            raise ConfigError(f"attribute {self.name} cannot be {value!r} ({error})") from None

    def _fitted(self, value: Any) -> Any:
        form = self.fit(value)
        if form is MISFIT:
            raise ConfigError(misfit(self.name, value, self.hint), hint=nearest_word(value, self.hint))
        return form


def by_annotation(op: type[Any], fields: Sequence[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """The fields of an op, each with a converter; an attrs field transformer.

    An inherited field may have one already, and an `attrs.Converter`, which sees the whole op, answers for itself.
    """
    return [
        f
        if isinstance(f.converter, _ToKind | attrs.Converter)
        else f.evolve(converter=_ToKind(op, f.name, f.converter))
        for f in fields
    ]


def refusing(init: _Init) -> _Init:
    """The initialiser of an op, with every refusal an error of rlx's that names the op."""

    @functools.wraps(init)
    def set_attributes(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            init(self, *arguments, **named)
        except RlxError as error:
            raise error.about(self.title) from None
        except _REFUSALS as error:
            raise _refusal(init, self, arguments, named, error) from None

    return set_attributes  # type: ignore[return-value]  # it takes what `init` takes


def _refusal(init: Any, op: Any, arguments: Sequence[Any], named: dict[str, Any], error: Exception) -> RlxError:
    """Return the error for refused attributes: for their names and number, or from a validator."""
    fields = [a for a in attrs.fields(type(op)) if a.init]
    known = [a.name for a in fields]
    takes = f"{op.title}: takes ({', '.join(f'{n}=' for n in known)})"
    for name in named:
        if name not in known:
            return UnknownNameError(f"{takes}, not {name}=", hint=nearest(name, known))
    missing = [a.name for a in fields[len(arguments) :] if a.default is attrs.NOTHING and a.name not in named]
    if missing:
        return WrongInputCountError(f"{takes}, and {', '.join(f'{n}=' for n in missing)} must be given")
    try:
        inspect.signature(init).bind(op, *arguments, **named)
    except TypeError as mismatch:
        return WrongInputCountError(f"{takes}, and these do not match it ({mismatch})")
    return ConfigError(f"{op.title}: {_in_own_words(error)}")


_BOUND = re.compile(r"'(\w+)' must be (\S+ .+?): (.*)", re.DOTALL)
_LENGTH = re.compile(r"Length of '(\w+)' must be (\S+ .+?): (.*)", re.DOTALL)


def _in_own_words(error: Exception) -> str:
    """Return the message of a validator, reworded for the validators of attrs; an author's message is unchanged."""
    match error.args:
        case (_, attrs.Attribute(name=name), type() as kind, value):
            return f"attribute {name} must be of type {kind.__name__}, not {value!r} ({type(value).__name__})"
        case (_, attrs.Attribute(name=name), re.Pattern() as pattern, value):
            return f"attribute {name} must match {pattern.pattern!r}, not {value!r}"
        case (_, attrs.Attribute(name=name), Collection() as options, value):
            return f"attribute {name} must be {' or '.join(map(repr, options))}, not {value!r}"
        case (str() as text,) if match := _BOUND.fullmatch(text):
            return f"attribute {match[1]} must be {match[2]}, not {match[3]}"
        case (str() as text,) if match := _LENGTH.fullmatch(text):
            return f"attribute {match[1]} must have a length {match[2]}, not {match[3]}"
    return str(error.args[0] if error.args else error)
