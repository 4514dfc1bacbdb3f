"""Rows of op listings: owner, call, written and derived rules."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import Any, Final

import attrs

from rlx_core.errors import PluginError, RlxError, UnknownNameError, nearest
from rlx_core.ir.apply import OpFunction
from rlx_core.ir.op import Op
from rlx_core.plugins import PluginHost, Provenance, Registry
from rlx_core.public import FUNCTIONS, SPELLINGS
from rlx_core.system.records import frozen

RULES: Final = ("decompose", "vjp", "jvp", "batch", "reference")


@frozen(slots=False)
class OpRow:
    """One op as a listing shows it.

    Args:
        rules: Rule → `written`, `derived`, `none`, or `by PLUGIN` for one that a plugin contributes.
        op: The class; `None` if it cannot be imported, with the reason in `fault`.
    """

    name: str
    owner: Provenance
    rules: dict[str, str]
    op: type[Op] | None
    fault: str | None = None

    @property
    def family(self) -> str:
        """The heading of its listing: the module that defines it, or its folder among rlx's ops, in words."""
        if self.op is None:
            return ""
        module = self.op.__module__
        relative = module.removeprefix("rlx_core.ops.")
        return (module.rpartition(".")[2] if relative == module else relative.partition(".")[0]).replace("_", " ")

    @cached_property
    def python(self) -> list[str]:
        """The functions that a program calls it by: of `rlx_core`, or of the package that brings it."""
        return [] if self.op is None else python_names(self.op)

    @property
    def operands(self) -> list[str]:
        """The operands as a signature has them; `?` marks an optional one."""
        declared = self.op.operands if self.op else ()
        return ["*" * o.is_variadic + o.name + "?" * o.is_optional for o in declared]

    @property
    def attributes(self) -> dict[str, str | None]:
        """Attribute → its default in Python's spelling; `None` where it must be given."""
        if self.op is None:
            return {}
        return {a.name: default_of(a) for a in attrs.fields(self.op) if a.init}

    @property
    def signature(self) -> str:
        """The op as a call: operands, then attributes."""
        named = [name if default is None else f"{name}={default}" for name, default in self.attributes.items()]
        return f"{self.name}({'; '.join(filter(None, [', '.join(self.operands), ', '.join(named)]))})"

    @property
    def summary(self) -> str:
        """The first line of its documentation, or why it cannot be imported."""
        if self.op is None:
            return self.fault or ""
        # A class without a docstring would show its base's.
        return inspect.cleandoc(vars(self.op).get("__doc__") or "").split("\n")[0]


def rows(host: PluginHost, pattern: str) -> list[OpRow]:
    """Every op whose name has `pattern` in it or matches it, by name. One that cannot be imported is a row too.

    Raises:
        UnknownNameError: There is none.
    """
    registry = host.activate_all()
    names = sorted(name for name in registry.ops if pattern in name or fnmatchcase(name, pattern))
    if pattern and not names:
        full_name(host, pattern)  # raises
    return [row_of(registry, name) for name in names]


def exact_name(host: PluginHost, word: str) -> str | None:
    """The full name of the one op that a word means: itself, or `softmax` for `rlx.softmax`."""
    registry = host.activate_all()
    known = {*registry.ops, *(name for kind, name in registry.refused if kind == "ops")}
    if word in known:
        return word
    named = [name for name in known if name.partition(".")[2] == word]
    return named[0] if len(named) == 1 else None


def full_name(host: PluginHost, word: str) -> str:
    """The full name of an op for a word, usable or not.

    Raises:
        RlxError: The op does not exist; the error lists failed plugins that might have it, and similar names.
    """
    exact = exact_name(host, word)
    if exact is not None:
        return exact
    try:
        host.require("ops", word)
    except UnknownNameError as error:
        # A word without its domain is too far from every full name to be near one.
        error.hint = error.hint or nearest(word, (name.partition(".")[2] for name in host.registry().ops))
        raise
    return word


def required_row(host: PluginHost, name: str) -> OpRow:
    """The row of an op that must be usable.

    Raises:
        RlxError: It is not; the plugin's own cause is in the message.
    """
    host.require("ops", name)
    row = row_of(host.activate_all(), name)
    if row.op is None:
        op = host.load("ops", name)
        raise PluginError(f"{name}: its plugin gives {op!r}, which is no op")
    return row


def row_of(registry: Registry, name: str) -> OpRow:
    """The row of one op that is registered."""
    owner = registry.owner("ops", name)
    try:
        op = registry.load("ops", name)
    except RlxError as error:
        return OpRow(name, owner, {}, None, error.message)
    if not (isinstance(op, type) and issubclass(op, Op)):
        return OpRow(name, owner, {}, None, f"{op!r} is no op")
    added = {kind: f"by {registry.owner('rules', spec.name).plugin}" for kind, spec in registry.rules_for(name).items()}
    rules = {"decompose": op.decompose, "vjp": op.vjp, "jvp": op.jvp, "batch": op.batch, "reference": op.reference}
    present = {rule: added.get(rule, "written") for rule in RULES if rule in added or rules[rule] is not None}
    return OpRow(name, owner, {rule: present.get(rule) or derivation(rule, present) for rule in RULES}, op)


def python_names(op: type[Op]) -> list[str]:
    """The names of an op in Python: its public function, and functions that create it among other ops."""
    spelt = [name if name.startswith("nn.") else f"rlx.{name}" for name in SPELLINGS.get(op.name, "").split()]
    public_names = public_functions().get(op, [])
    word = op.name.partition(".")[2]
    if op.name.startswith("rlx.") and not public_names and word in FUNCTIONS:
        public_names = [f"rlx.{word}"]  # a function that prepares its arguments first
    package = sys.modules.get(op.__module__.partition(".")[0])
    if package is not None and not public_names and not spelt:
        names = getattr(package, "__all__", ())
        members = ((name, getattr(package, name, None)) for name in names)
        public_names = [
            f"{package.__name__}.{name}"
            for name, f in members
            if (isinstance(f, OpFunction) and f.op is op) or (name == word and callable(f))
        ]
    return list(dict.fromkeys([*public_names, *spelt]))


@cache
def public_functions() -> dict[type[Op], list[str]]:
    """Op → the functions of `rlx_core` that are its own."""
    functions: dict[type[Op], list[str]] = {}
    for name, place in FUNCTIONS.items():
        module, _, attribute = place.partition(":")
        function = getattr(importlib.import_module(module), attribute or name)
        if isinstance(function, OpFunction):
            functions.setdefault(function.op, []).append(f"rlx.{name}")
    return functions


def derivation(rule: str, present: Mapping[str, str]) -> str:
    """Return whether a rule that is not written can be derived from the existing ones."""
    sources = {
        "vjp": {"decompose", "jvp"},
        "jvp": {"decompose", "vjp"},
        "batch": {"decompose"},
        "reference": {"decompose"},
    }
    return "derived" if sources.get(rule, set()) & set(present) else "none"


def default_of(attribute: attrs.Attribute[Any]) -> str | None:
    """The text of a default; a default factory is shown by the value that it creates."""
    default: Any = attribute.default
    if default is attrs.NOTHING:
        return None
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # a class at run time, a function to type checkers
        return "…" if default.takes_self else repr(default.factory())
    return repr(default)
