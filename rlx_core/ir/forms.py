"""Reading untrusted input: each function takes a part of a JSON form and checks its shape; and the forms of records.

A file may hold anything, so nothing is indexed, unpacked or trusted before one of these has checked it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin

import attrs

from rlx_core.errors import FormatError, RlxError
from rlx_core.ir.annotations import annotations_of

Json = Any
"""Values that `json.dumps` writes without loss: None, bool, int, str, lists, and dictionaries with string keys."""


def need(form: Json, kind: type[Any], what: str) -> Any:
    """`form`, which must be of this kind (a bool is no int)."""
    if not isinstance(form, kind) or (kind is int and isinstance(form, bool)):
        raise FormatError(f"{what} must be {kind.__name__}, not {type(form).__name__}")
    return form


def optional(form: Json, kind: type[Any], what: str) -> Any:
    return None if form is None else need(form, kind, what)


def items(form: Json, count: int, what: str) -> list[Any]:
    """A list of exactly `count` items."""
    if not isinstance(form, list) or len(form) != count:
        raise FormatError(f"{what} must be a list of {count}, not {str(form)[:60]}")
    return form


def pair(form: Json, what: str) -> list[Any]:
    return items(form, 2, what)


def quoted(read: Callable[[str], Any], text: str) -> Any:
    """Return `read(text)`; its exceptions about the text are raised as a FormatError."""
    try:
        return read(text)
    except FormatError:
        raise
    except RlxError as error:
        raise FormatError(error.message, *error.facts, hint=error.hint) from None


def make_record(cls: type[Any], values: Mapping[str, Any]) -> Any:
    """A record from its fields.

    Raises:
        FormatError: The class refuses them.
    """
    try:
        return cls(**values)
    except (RlxError, TypeError, ValueError, AttributeError, KeyError, IndexError, OverflowError) as error:
        raise FormatError(f"{cls.__name__}: fields {dict(values)} are refused ({error})") from None


NOT_STORED: Final = "not stored"
"""Key of the metadata of fields that `RecordForms` leaves out; they have their defaults in a record that is read."""


class ValueForm(NamedTuple):
    """How values of one annotation are written, and read from a form with its description for errors."""

    write: Callable[[Any], Json]
    read: Callable[[Json, str], Any]


def plain_form(read: Callable[[Json, str], Any]) -> ValueForm:
    """The form of values that JSON has itself."""
    return ValueForm(lambda value: value, read)


_PLAIN: Final[Mapping[Any, ValueForm]] = {
    str: plain_form(lambda form, what: need(form, str, what)),
    bool: plain_form(lambda form, what: need(form, bool, what)),
    int: plain_form(lambda form, what: need(form, int, what)),
    Any: plain_form(lambda form, what: form),
}


class RecordForms:
    """Writes attrs records as JSON and reads them back, by the annotations of their fields.

    A record is a dictionary by the names of its fields, or the list of their values; tuples are lists.

    Args:
        forms: The forms of further annotations.
        rows: The records that are lists.
    """

    def __init__(self, forms: Mapping[Any, ValueForm] = {}, rows: Collection[type[Any]] = ()) -> None:
        self._forms = {**_PLAIN, **forms}
        self._rows = frozenset(rows)

    def write(self, value: Any, kind: Any) -> Json:
        """A value of the annotation `kind`, often the class of a record, as JSON."""
        if kind in self._forms:
            return self._forms[kind].write(value)
        origin, inner = _parts(kind)
        if value is None:
            return None
        if origin is Union:
            return self.write(value, inner[0])
        if origin is tuple:
            return list(map(self.write, value, _items_of(inner, len(value))))
        if origin is Mapping:
            return {name: self.write(each, inner[1]) for name, each in value.items()}
        row = {name: self.write(getattr(value, name), hint) for name, hint in _stored(kind).items()}
        return list(row.values()) if kind in self._rows else row

    def read(self, form: Json, kind: Any, what: str) -> Any:
        """A value of the annotation `kind` from JSON that may be anything; `what` describes it for errors.

        Raises:
            FormatError: It has another form; the message names the record and the field.
        """
        try:
            return self._read(form, kind, what)
        except RecursionError:
            raise FormatError(f"{what} is nested too deep") from None

    def _read(self, form: Json, kind: Any, what: str) -> Any:
        if kind in self._forms:
            return self._forms[kind].read(form, what)
        origin, inner = _parts(kind)
        if origin is Union:
            return None if form is None else self._read(form, inner[0], what)
        if origin is tuple:
            kinds = _items_of(inner, len(need(form, list, what)))
            return tuple(self._read(*each, what) for each in zip(items(form, len(kinds), what), kinds, strict=True))
        if origin is Mapping:
            return {name: self._read(each, inner[1], what) for name, each in need(form, dict, what).items()}
        fields = _stored(kind)
        row = (
            dict(zip(fields, items(form, len(fields), what), strict=True))
            if kind in self._rows
            else need(form, dict, what)
        )
        values = {name: self._read(row.get(name), hint, f"{kind.__name__}: {name}") for name, hint in fields.items()}
        return make_record(kind, values)


PLAIN_FORMS: Final = RecordForms()
"""The forms of records of texts, numbers and further such records."""


@cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """The origin of an annotation, and the annotations in it; `None` is left out of a union."""
    origin = get_origin(kind)
    return Union if origin is UnionType else origin, tuple(each for each in get_args(kind) if each is not NoneType)


def _items_of(inner: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """The annotations of the items of a tuple."""
    return inner[:1] * count if inner[1:] == (Ellipsis,) else inner


@cache
def _stored(cls: type[Any]) -> dict[str, Any]:
    """The annotations of the stored fields of a record, by name."""
    hints = annotations_of(cls)
    return {a.name: hints[a.name] for a in attrs.fields(cls) if NOT_STORED not in a.metadata}
