"""The structure of a pytree in canonical form, as files hold it: nodes after their children, so that no depth recurses.

Tuples, lists, dictionaries, ordered dictionaries, deques, random keys and named tuples can be stored. A named tuple is stored as
the name of its class; the reader of the file passes the class, because reading imports and executes nothing.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import optree

from rlx_core.errors import FormatError
from rlx_core.ir.attributes import Decoder, Encoder
from rlx_core.ir.forms import Json, items, need, optional
from rlx_core.trees.key import Key

_DEEPEST: Final = 1000
"""Levels; pytrees of more cannot be flattened."""

_LEAF, _NONE = "leaf", "none"
_NAMED: Final = "namedtuple"
_RANDOM_KEY: Final = "key"


def tree_form(structure: optree.PyTreeSpec) -> Json:
    """The structure in canonical form.

    Raises:
        FormatError: It has a container of a kind that a file cannot hold.
    """
    rows, waiting = [], [structure]
    while waiting:
        node = waiting.pop()
        rows.append(_row(node))
        waiting.extend(node.children())
    return rows[::-1]


def _row(node: optree.PyTreeSpec) -> Json:
    kind: Any = node.type
    if kind is None:
        return _LEAF
    if kind is type(None):
        return _NONE
    if kind is Key:
        return [_RANDOM_KEY, node.num_children]
    if kind in (tuple, list, deque):
        limit = [_deque_of(node).maxlen] if kind is deque else []
        return [kind.__name__, node.num_children, *limit]
    if kind in (dict, OrderedDict):
        return [kind.__name__, [_key(key) for key in node.entries()]]
    if optree.is_namedtuple_class(kind):
        return [_NAMED, class_name(kind), list(kind._fields)]
    raise FormatError(
        f"file: a {class_name(kind)} cannot be stored as a part of arguments or results",
        hint="use tuples, lists, dictionaries or named tuples",
    )


def _deque_of(node: optree.PyTreeSpec) -> deque[Any]:
    template: Any = optree.tree_unflatten(node, range(node.num_leaves))
    assert isinstance(template, deque), "the structure's own type"
    return template


def _key(key: object) -> Json:
    if key is None or type(key) in (bool, int, float, str, tuple):
        return Encoder().value(key)
    raise FormatError(
        f"file: a dictionary's key {key!r} of type {type(key).__name__} cannot be stored",
        hint="use texts or numbers as keys",
    )


def class_name(cls: type[Any]) -> str:
    """Return the name of a class in files: without its module, which may be another where the file is read (`__main__`, say)."""
    return cls.__qualname__


def named_tuples(structures: Iterable[optree.PyTreeSpec]) -> tuple[type[Any], ...]:
    """Return the named tuples in some structures, each once: the classes that `tree_from` needs."""
    result: dict[type[Any], None] = {}
    waiting = list(structures)
    while waiting:
        node = waiting.pop()
        kind: Any = node.type
        if kind is not None and optree.is_namedtuple_class(kind):
            result[kind] = None
        waiting.extend(node.children())
    return tuple(result)


def tree_from(form: Json, classes: Mapping[str, type[Any]]) -> optree.PyTreeSpec:
    """The structure that `tree_form` wrote.

    Args:
        form: The form to read.
        classes: The named tuples that may occur, by the names that files call them.

    Raises:
        FormatError: The form is another, or a named tuple is not among `classes`.
    """
    done: list[tuple[int, optree.PyTreeSpec]] = []  # depth, structure
    for row in need(form, list, "a structure"):
        count = _count(row)
        if count > len(done):
            raise FormatError(f"structure: {str(row)[:60]} has {count} parts, and {len(done)} are left")
        parts = done[len(done) - count :]
        del done[len(done) - count :]
        depth = 1 + max((d for d, _ in parts), default=0)
        if depth > _DEEPEST:
            raise FormatError(f"structure: it is nested more than {_DEEPEST} deep")
        done.append((depth, _made(row, [part for _, part in parts], classes)))
    if len(done) != 1:
        raise FormatError(f"structure: it has {len(done)} roots, not one")
    return done[0][1]


def _count(row: Json) -> int:
    """Return the number of parts that a container declares."""
    if row in (_LEAF, _NONE):
        return 0
    if not isinstance(row, list) or len(row) < 2:
        raise FormatError(f"structure: {str(row)[:60]} is no row of one")
    entry = row[2] if row[0] == _NAMED and len(row) == 3 else row[1]
    count: int = len(entry) if isinstance(entry, list) else need(entry, int, "a number of parts")
    if count < 0:
        raise FormatError(f"structure: {str(row)[:60]} has {count} parts")
    return count


def _made(row: Json, parts: Sequence[optree.PyTreeSpec], classes: Mapping[str, type[Any]]) -> optree.PyTreeSpec:
    if isinstance(row, str):
        return optree.treespec_leaf() if row == _LEAF else optree.treespec_none()
    match row[0]:
        case "tuple":
            items(row, 2, "a tuple")
            return optree.treespec_tuple(parts)
        case "list":
            items(row, 2, "a list")
            return optree.treespec_list(parts)
        case "deque":
            limit = optional(items(row, 3, "a deque")[2], int, "a deque's limit")
            if limit is not None and limit < len(parts):
                raise FormatError(f"structure: a deque of at most {limit} has {len(parts)} parts")
            return optree.treespec_deque(parts, maxlen=limit)
        case "key":
            if items(row, 2, "a random key")[1] != 1:
                raise FormatError(f"structure: a random key has one part, not {row[1]}")
            container: Any = Key(*parts)
            return optree.treespec_from_collection(container)
        case "dict":
            return optree.treespec_dict(_keyed(row, parts))
        case "OrderedDict":
            return optree.treespec_ordereddict(OrderedDict(_keyed(row, parts)))
        case "namedtuple":
            return optree.treespec_namedtuple(_class_of(row, classes)(*parts))
        case kind:
            raise FormatError(f"structure: there is no container {str(kind)[:60]!r}")


def _keyed(row: Json, parts: Sequence[optree.PyTreeSpec]) -> dict[Any, optree.PyTreeSpec]:
    written = need(items(row, 2, "a dictionary")[1], list, "keys")
    keys = [Decoder({}).value(key) for key in written]
    try:
        result = dict(zip(keys, parts, strict=True))
    except TypeError as error:
        raise FormatError(f"structure: keys {str(written)[:60]} are refused ({error})") from None
    if len(result) != len(parts):
        raise FormatError(f"structure: keys {str(written)[:60]} are not all different")
    return result


def _class_of(row: Json, classes: Mapping[str, type[Any]]) -> type[Any]:
    _, name, fields = items(row, 3, "a named tuple")
    result: Any = classes.get(need(name, str, "a class"))
    if result is None:
        raise FormatError(
            f"structure: the program takes or returns a named tuple {name}, and a file holds no classes",
            hint=f"rlx.load(path, classes=[{name}])",
        )
    if list(result._fields) != fields:
        raise FormatError(f"structure: {name} has the fields {', '.join(result._fields)}, and in the file {fields}")
    return result
