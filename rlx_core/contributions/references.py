"""`LazyRef`: the address of an object, so that a record can name a thing without importing it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, runtime_checkable

from attrs import field

from rlx_core.contributions.validators import refusal
from rlx_core.errors import Fact, PluginError, RlxError, nearest
from rlx_core.system.collecting import collecting_seldom
from rlx_core.system.records import frozen

REFERENCE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@runtime_checkable
class Named(Protocol):
    """A class or an object that carries its own full name, as every op class does."""

    name: str


@frozen
class LazyRef:
    """An object by its address, `"package.module:attribute"`, imported when it is first resolved.

    Args:
        text: The address.
        item: Which member, where the attribute is a family (a mapping, or things with a `name`).
        target: The object itself, where it exists already; the text is then only its description.
    """

    text: str
    item: str | None = None
    target: tuple[object, ...] = field(default=(), eq=False, repr=False)
    _memo: list[object] = field(factory=list, eq=False, repr=False, init=False)

    def __attrs_post_init__(self) -> None:
        if not self.target and not (isinstance(self.text, str) and REFERENCE.fullmatch(self.text)):
            raise refusal(self, "text", self.text, "`package.module:attribute`")

    def resolve(self) -> Any:
        """Return the object; exceptions of its import are contained, and become the cause of a `PluginError`."""
        if not self._memo:
            self._memo.append(self._find())
        return self._memo[0]

    def _find(self) -> Any:
        try:
            value = self.target[0] if self.target else import_address(self.text)
            return value if self.item is None else member(value, self.item)
        except (KeyboardInterrupt, PluginError):
            raise
        except BaseException as cause:
            # A module may do anything while it is imported, even exit; see docs/decisions/0002-plugin-discovery-and-isolation.md.
            reason = cause.message if isinstance(cause, RlxError) else cause
            raise PluginError(f"{self}: loading it raised {type(cause).__name__}", Fact("cause", reason)) from cause

    def __str__(self) -> str:
        return self.text if self.item is None else f"{self.text}[{self.item}]"


def reference(thing: object) -> LazyRef:
    """Return the `LazyRef` of something: text is an address, a `LazyRef` is returned as is, any other object is stored in a new
    one.
    """
    if isinstance(thing, LazyRef):
        return thing
    if isinstance(thing, str):
        return LazyRef(thing)
    described: Any = thing if hasattr(thing, "__qualname__") else type(thing)
    # The object's name distinguishes it from others of its class, where it has one: two tables are two records.
    suffix = f"({thing.name})" if described is not thing and isinstance(thing, Named) else ""
    return LazyRef(f"{described.__module__}:{described.__qualname__}{suffix}", target=(thing,))


def import_address(text: str) -> Any:
    """Import `"package.module:attribute.attribute"`."""
    module_name, _, path = text.partition(":")
    with collecting_seldom():
        value: Any = importlib.import_module(module_name)
    for attribute in path.split("."):
        value = getattr(value, attribute)
    return value


def member(family: object, name: str) -> object:
    """One member of a family: a mapping by key, or an iterable of things that carry their name."""
    if isinstance(family, Mapping):
        members = dict(family)
    elif isinstance(family, Iterable):
        members = {each.name: each for each in family if isinstance(each, Named)}
    else:
        raise PluginError(f"{name}: its family is a {type(family).__name__}, neither a mapping nor an iterable")
    if name not in members:
        raise PluginError(f"{name}: its family does not have it", hint=nearest(name, map(str, members)))
    return members[name]
