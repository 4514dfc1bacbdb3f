"""Domains: which plugin owns which names. A plugin owns the names that begin with its name, and the target of its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rlx_core import hints
from rlx_core.plugins.entry import PluginEntry, normalized

Domains = Mapping[str, tuple[PluginEntry, ...]]
"""Domain → its owners: one plugin, unless two distributions use one name for their plugins."""

UNOWNED: Final = frozenset({"rules", "kernels", "events", "commands", "functions"})
"""Kinds whose records are named after their purpose, which any plugin may serve, or by a common word."""


def owners(entries: Iterable[PluginEntry]) -> Domains:
    """Return the owners of each domain. A distribution that is known to have a target keeps it from plugins of the same name."""
    entries_by_domain: dict[str, tuple[PluginEntry, ...]] = {}
    for entry in entries:
        entries_by_domain[entry.name] = (*entries_by_domain.get(entry.name, ()), entry)
    return {domain: rightful(domain, those) for domain, those in entries_by_domain.items()}


def rightful(domain: str, entries: tuple[PluginEntry, ...]) -> tuple[PluginEntry, ...]:
    """Return the plugins that own a domain, among the plugins of one name."""
    if len(entries) == 1:
        return entries
    package = hints.packages.known_packages().get(f"target.{domain}")
    known = [e for e in entries if package is not None and normalized(e.distribution) == package.name]
    return tuple(known) or entries


def domain_of(kind: str, name: str) -> str | None:
    """Return the domain of a name of a kind, or `None` if it is in no domain."""
    return None if kind in UNOWNED else name.partition(".")[0]
