"""`PluginPolicy`: the plugins that the user enables, blocks or prefers, and the source of each setting."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

from attrs import field

from rlx_core import hints
from rlx_core.errors import nearest
from rlx_core.plugins.entry import PluginEntry, PluginOrigin, normalized
from rlx_core.plugins.states import State, Verdict
from rlx_core.system.records import frozen

BLOCK_VARIABLE: Final = "RLX_PLUGINS_BLOCK"
ALLOW_VARIABLE: Final = "RLX_PLUGINS_ALLOW"


@frozen
class Choice:
    """One word that the user wrote, and its source: the command line, a variable, or a file."""

    word: str
    source: str

    def covers(self, entry: PluginEntry) -> bool:
        """Return whether it matches this plugin; patterns such as `*` never match the built-in one."""
        if entry.origin is PluginOrigin.BUILTIN:
            return self.word == entry.name
        return fnmatchcase(entry.name, self.word) or fnmatchcase(normalized(entry.distribution), normalized(self.word))


def read_only(table: Mapping[str, Choice]) -> Mapping[str, Choice]:
    return MappingProxyType(dict(table))


NO_OVERRIDE: Final[Mapping[str, Choice]] = MappingProxyType({})


def choices(words: Iterable[str], source: str) -> tuple[Choice, ...]:
    return tuple(Choice(word, source) for word in words)


@frozen
class PluginPolicy:
    """The plugins that may be used, those that must be, and the winners of contested names.

    Policies of several sources add up with `+`: whatever any of them blocks is blocked; of several `allow` lists, a plugin
    must be on each; a right-hand override replaces a left-hand one.

    Args:
        block: Names or patterns of plugins or distributions that are never imported.
        allow: If not empty, the only ones that may be.
        enable: Plugins to activate at once, by name, file or module.
        override: For a contested name, the plugin that provides it.
    """

    block: tuple[Choice, ...] = ()
    allow: tuple[tuple[Choice, ...], ...] = ()
    enable: tuple[Choice, ...] = ()
    override: Mapping[str, Choice] = field(default=NO_OVERRIDE, converter=read_only)

    @classmethod
    def of(
        cls,
        *,
        block: Iterable[str] = (),
        allow: Iterable[str] = (),
        enable: Iterable[str] = (),
        override: Mapping[str, str] | None = None,
        source: str = "the program",
    ) -> PluginPolicy:
        """A policy whose every word comes from one source, such as the command line."""
        allowed = choices(allow, source)
        return cls(
            choices(block, source),
            (allowed,) if allowed else (),
            choices(enable, source),
            {name: Choice(plugin, source) for name, plugin in (override or {}).items()},
        )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> PluginPolicy:
        """Return the policy of `RLX_PLUGINS_BLOCK` and `RLX_PLUGINS_ALLOW`, words separated by commas or spaces."""
        variables = os.environ if environment is None else environment
        blocked = cls.of(block=words_in(variables.get(BLOCK_VARIABLE, "")), source=BLOCK_VARIABLE)
        return blocked + cls.of(allow=words_in(variables.get(ALLOW_VARIABLE, "")), source=ALLOW_VARIABLE)

    def __add__(self, other: PluginPolicy) -> PluginPolicy:
        return PluginPolicy(
            self.block + other.block,
            self.allow + other.allow,
            self.enable + other.enable,
            {**self.override, **other.override},
        )

    def verdict(self, entry: PluginEntry) -> Verdict | None:
        """Why a plugin must not be imported, or `None`."""
        for choice in self.block:
            if choice.covers(entry):
                mend = f"take `{choice.word}` out of {choice.source}"
                return Verdict(State.BLOCKED, f"blocked by {choice.source}", mend)
        if entry.origin is not PluginOrigin.BUILTIN:
            for allowed in self.allow:
                if not any(choice.covers(entry) for choice in allowed):
                    source = allowed[0].source
                    mend = f"add `{entry.name}` to {source}"
                    return Verdict(State.BLOCKED, f"not allowed by {source}", mend)
        if entry.incompatible is not None:
            update = hints.packages.reinstalling(entry.distribution, entry.file, "--upgrade")
            mend = f"{update}, or install an rlx-core that it takes"
            return Verdict(State.INCOMPATIBLE, entry.incompatible, mend)
        return None

    def unmatched(self, entries: Iterable[PluginEntry]) -> tuple[str, ...]:
        """Return the words that match no known plugin: probably misspelt, and shown in the listing."""
        known = list(entries)
        words = {choice for choice in self.block if not any(choice.covers(entry) for entry in known)}
        words |= {choice for row in self.allow for choice in row if not any(choice.covers(e) for e in known)}
        names = [entry.name for entry in known]
        return tuple(sorted(unmatched_note(each, nearest(each.word, names)) for each in words))


def unmatched_note(choice: Choice, hint: str | None) -> str:
    return f"{choice.source}: no plugin is called `{choice.word}`" + (f"; {hint}" if hint else "")


def words_in(value: str) -> list[str]:
    return value.replace(",", " ").split()
