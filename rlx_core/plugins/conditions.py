"""Conditions: the words that activate a plugin, and which of them a look-up makes true.

A plugin named `acme` is activated when `domain.acme` or `target.acme` becomes true, without declaring
anything. Its distribution may declare more of them as entry points of the group `rlx.when`:

    [project.entry-points."rlx.when"]
    "target" = "acme.plugin"            # whenever any target is resolved; its backends are then offered as the default
    "target.gpu" = "acme.plugin"        # that target only
    "domain.other" = "acme.plugin"      # "domain.other" = "acme.plugin"      # whenever a name of that domain is resolved
    "compile" = "acme.plugin"           # whenever something is compiled
    "command.bench" = "acme.plugin"     # also `function.…`, `import.…`, `export.…`, `option.…`
"""

from __future__ import annotations

from typing import Final

COMPILE: Final = "compile"
TARGET: Final = "target"
VERBS: Final = {
    "commands": "command",
    "exporters": "export",
    "functions": "function",
    "importers": "import",
    "options": "option",
}


WORDS: Final = (COMPILE, TARGET, "domain", *VERBS.values())
"""The first words of valid conditions."""


def is_condition(text: str) -> bool:
    """Return whether the condition can become true at some time; others are misspelt."""
    word, dot, suffix = text.partition(".")
    if word == COMPILE:
        return not dot
    return word in WORDS and (bool(suffix) if dot else word != "domain")


def conditions_of(kind: str, name: str) -> tuple[str, ...]:
    """Return the conditions that become true when this name, of this kind, is resolved."""
    if kind == "backends":
        return target_conditions(name)
    if kind == "kernels":
        return target_conditions(name.partition(":")[0])
    if kind == "events":
        return (COMPILE,)
    domain, _, suffix = name.partition(".")
    if kind in VERBS:
        return (f"domain.{domain}", VERBS[kind], f"{VERBS[kind]}.{suffix or name}")
    return (f"domain.{domain}",)


def target_conditions(target: str) -> tuple[str, ...]:
    """Return the conditions that become true when a target is resolved."""
    return (TARGET, f"{TARGET}.{target}")
