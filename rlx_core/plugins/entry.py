"""`PluginEntry`: metadata of a plugin that is known before any of its code runs."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Final

from attrs import Factory, field

from rlx_core import hints
from rlx_core.contributions.references import import_address
from rlx_core.errors import Fact, PluginError
from rlx_core.hooks import API_VERSION
from rlx_core.system.records import frozen

CORE: Final = "rlx-core"
MODULE: Final = re.compile(r"[A-Za-z_][\w.]*(:[A-Za-z_][\w.]*)?")


class PluginOrigin(StrEnum):
    """The way in which a plugin was registered."""

    BUILTIN = "builtin"  # rlx-core's own ops and passes
    INSTALLED = "installed"  # an entry point of an installed distribution
    NAMED = "named"  # a file or a module named by the user
    GIVEN = "given"  # an object passed in by the program


@frozen
class PluginEntry:
    """One plugin as its packaging describes it; creating one imports nothing.

    Args:
        name: The entry point's name, which is the plugin's domain.
        module: The module to import, `package.module` or `package.module:attribute`; a path for a plugin in a file.
        requires: The distribution's requirements on rlx-core, as its metadata has them.
        others: Its requirements on other distributions; those that have plugins are compared with the installed versions.
        when: Conditions under which the plugin is activated, in addition to explicit use (group `rlx.when`).
        file: Where the plugin is declared, until its own file is known.
        plugin: The plugin itself, where the program has it already.
        fault: Why it cannot be used at all, where that is known from its description.
        incompatible: Why its requirements exclude this rlx-core; worked out from `requires`.
    """

    name: str
    module: str = ""
    distribution: str = "(not installed)"
    version: str = "0"
    requires: tuple[str, ...] = ()
    when: tuple[str, ...] = ()
    file: str = ""
    plugin: object = field(default=None, eq=False, repr=False)
    origin: PluginOrigin = field(
        default=Factory(
            lambda self: PluginOrigin.INSTALLED if self.plugin is None else PluginOrigin.GIVEN, takes_self=True
        ),
        converter=PluginOrigin,
    )
    others: tuple[str, ...] = ()
    fault: str | None = None
    incompatible: str | None = field(default=Factory(lambda self: incompatibility(self.requires), takes_self=True))

    @property
    def key(self) -> tuple[str, str, str]:
        """Key that identifies an entry and orders activation."""
        return (self.name, self.distribution, self.module)

    @property
    def conditions(self) -> frozenset[str]:
        """Conditions that activate this plugin: its own name as a domain and as a target, and its declared conditions."""
        return frozenset((f"domain.{self.name}", f"target.{self.name}", *self.when))

    def matches(self, word: str) -> bool:
        """Return whether a name that the user wrote means this plugin: its own name, or its distribution's."""
        return word == self.name or normalized(word) == normalized(self.distribution)

    def load(self) -> object:
        """Import the plugin. Raises whatever its code raises."""
        if self.fault is not None:
            raise PluginError(f"{self.name}: {self.fault}")
        if self.plugin is not None:
            return self.plugin
        if self.module.endswith(".py"):
            return import_file(Path(self.module))
        return import_address(self.module) if ":" in self.module else importlib.import_module(self.module)


def builtin_entry() -> PluginEntry:
    """rlx-core's own plugin, for a source tree whose metadata was never installed."""
    return PluginEntry("rlx", "rlx_core.builtin", CORE, API_VERSION, origin=PluginOrigin.BUILTIN)


def named_entry(text: str) -> PluginEntry:
    """The entry for a plugin that is not installed: `path/to/file.py`, `module` or `module:attribute`.

    Its domain is the last word of the file's or the module's name, unless the text begins with `domain=`.
    """
    domain, equals, suffix = text.partition("=")
    address = suffix if equals else text
    if address.endswith(".py"):
        path = Path(address).expanduser().absolute()
        fault = None if path.is_file() else f"there is no file {path}"
        version = "0" if fault else f"sha256:{file_digest(path)}"
        name, address, file = path.stem, str(path), str(path)
    else:
        fault = None if MODULE.fullmatch(address) else f"{address!r} is no file.py, `module` or `module:attribute`"
        name, file, version = address.partition(":")[0].rpartition(".")[2], "", "0"
    name = domain if equals else name
    return PluginEntry(name, address, version=version, file=file, origin=PluginOrigin.NAMED, fault=fault)


def given_entry(plugin: object) -> PluginEntry:
    """Return the entry for a plugin object that the program passes in; its domain is the last word of its name."""
    name = plugin.__name__ if isinstance(plugin, ModuleType | type) else type(plugin).__name__
    return PluginEntry(name.rpartition(".")[2].lower(), plugin=plugin)


def import_file(path: Path) -> ModuleType:
    """Import a module from a path, under a name that no installed module has.

    The name comes from the content, not the path, because it ends up in digests.
    """
    name = f"rlx_file_{path.stem}_{file_digest(path)}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"{path.stem}: no module can be made of this file", Fact("file", path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs, as `import` does: its own classes look themselves up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def file_digest(path: Path) -> str:
    """Return a digest that serves as the version of a file that no distribution owns."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def file_of(plugin: object) -> str:
    """Return the source file of a plugin, or an empty text for one made in a shell."""
    if isinstance(plugin, ModuleType):
        return str(vars(plugin).get("__file__") or "")  # not an attribute: modules may have a `__getattr__`
    try:
        return inspect.getsourcefile(plugin if isinstance(plugin, type) else type(plugin)) or ""
    except (OSError, TypeError):  # written in C, or typed into an interpreter
        return ""


def incompatibility(requires: tuple[str, ...]) -> str | None:
    """Why these requirements exclude this rlx-core, or `None`; decided without importing the plugin."""
    return next(_exclusions(requires, lambda _: API_VERSION, "this is {}"), None)


def unmet_requirements(requires: tuple[str, ...], versions: Mapping[str, str]) -> Iterator[str]:
    """The requirements that exclude an installed distribution, as remarks.

    Args:
        versions: Normalised distribution → its version; others are not compared.
    """
    return _exclusions(requires, lambda name: versions.get(normalized(name)), "{} is installed")


def _exclusions(requires: tuple[str, ...], version_of: Callable[[str], str | None], template: str) -> Iterator[str]:
    """Yield the requirements that cannot be parsed, or that exclude the version of their distribution; `template` describes that
    version.
    """
    if not requires:
        return
    # Imported here because it costs several milliseconds, and the cached index has the result already.
    from packaging.requirements import InvalidRequirement, Requirement

    for text in requires:
        try:
            requirement = Requirement(text)
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        except (InvalidRequirement, ValueError) as error:
            yield f"its requirement {text!r} cannot be read: {str(error).splitlines()[0]}"
            continue
        version = version_of(requirement.name)
        if applies and version is not None and not requirement.specifier.contains(version, prereleases=True):
            yield f"needs {requirement.name} {requirement.specifier}, and {template.format(version)}"


def normalized(distribution: str) -> str:
    """A distribution's name as package indexes compare it: `Acme_RLX` and `acme-rlx` are one."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


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
