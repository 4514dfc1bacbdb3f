"""`rlx passes`: the passes there are, with their options and what they require and ensure.

A set of rewrite rules stands in a pipeline like a pass, so it is listed as the pass that applies it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Any

import attrs
import typer

from rlx_core.cli.op_rows import default_of
from rlx_core.cli.session import CliSession
from rlx_core.contributions import PassSpec, RuleSetSpec
from rlx_core.errors import RlxError
from rlx_core.passes.engine.apply_rules import pass_of
from rlx_core.passes.engine.base import PassRecord
from rlx_core.passes.engine.rules import RuleSet
from rlx_core.plugins import PluginHost, Provenance, Registry
from rlx_core.system.records import frozen


@frozen
class PassRow:
    """One pass as a listing shows it.

    Args:
        record: The class; `None` if it cannot be imported, with the reason in `fault`.
    """

    spec: PassSpec | RuleSetSpec
    owner: Provenance
    record: type[PassRecord] | None
    fault: str | None = None

    @property
    def stage(self) -> str:
        """The level of program it works on."""
        if self.record is not None:
            return self.record.stage
        return (self.spec.stage if isinstance(self.spec, PassSpec) else None) or "mir"

    @property
    def options(self) -> dict[str, str | None]:
        """Option, as a configuration spells it → its default; `None` where it must be given."""
        if self.record is None:
            return {}
        return {a.name.replace("_", "-"): default_of(a) for a in attrs.fields(self.record) if a.init}

    @property
    def relations(self) -> dict[str, list[str]]:
        """Its required, ensured and invalidated properties, and its neighbours."""
        names: dict[str, list[str]] = {"requires": [], "ensures": [], "invalidates": []}
        before, after = set(self.spec.before), set(self.spec.after)
        if self.record is not None:
            for relation, others in (
                ("requires", self.record.requires),
                ("ensures", self.record.ensures),
                ("invalidates", self.record.invalidates),
            ):
                names[relation] = sorted(each.name for each in others)
            before |= set(self.record.before)
            after |= set(self.record.after)
        return {**names, "before": sorted(before), "after": sorted(after)}

    @property
    def summary(self) -> str:
        """The first line of its manual, or why it cannot be imported."""
        if self.record is None:
            return self.fault or ""
        return self.spec.summary or inspect.cleandoc(vars(self.record).get("__doc__") or "").split("\n")[0]


def passes(
    ctx: typer.Context,
    pattern: Annotated[str, typer.Argument(help="Part of a name, or a pattern such as acme.*.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List passes with their options and relations."""
    session = CliSession.of(ctx)
    session.answer(lambda: rows(session.host, pattern), list_json if as_json else None, layout)


def rows(host: PluginHost, pattern: str = "") -> list[PassRow]:
    """Every pass whose name has `pattern` in it or matches it, in the registry's order.

    Raises:
        UnknownNameError: There is none.
    """
    registry = host.activate_all()
    named = [(kind, name) for kind in ("passes", "rulesets") for name in registry.table(kind)]
    matches = [(kind, name) for kind, name in named if pattern in name or fnmatchcase(name, pattern)]
    if pattern and not matches:
        registry.require("passes", pattern)
    return [row_of(registry, kind, name) for kind, name in matches]


def row_of(registry: Registry, kind: str, name: str) -> PassRow:
    """The row of one pass or set of rules that is registered."""
    spec, owner = registry.require(kind, name), registry.owner(kind, name)
    try:
        record = registry.load(kind, name)
    except RlxError as error:
        return PassRow(spec, owner, None, error.message)
    if isinstance(record, RuleSet):
        record = pass_of(record)
    if not (isinstance(record, type) and issubclass(record, PassRecord)):
        return PassRow(spec, owner, None, f"{record!r} is no pass")
    return PassRow(spec, owner, record)


def pass_json(row: PassRow) -> dict[str, Any]:
    """One pass with stable keys."""
    return {
        "name": row.spec.name,
        "kind": "rules" if isinstance(row.spec, RuleSetSpec) else "pass",
        "stage": row.stage,
        "plugin": row.owner.plugin,
        "distribution": row.owner.distribution,
        "version": row.owner.version,
        "summary": row.summary,
        "options": row.options,
        **row.relations,
        "fault": row.fault,
    }


def list_json(pass_rows: list[PassRow]) -> dict[str, Any]:
    """The listing."""
    return {"passes": [pass_json(row) for row in pass_rows]}


def layout(pass_rows: list[PassRow]) -> Iterator[Any]:
    """One block per pass: its name, description, options and relations."""
    from rlx_core.cli.tables import cell, counted, entry, facts, listing

    lines = []
    for row in pass_rows:
        about = cell(row.summary, "red" if row.record is None else "")
        entries = [(label, content) for label, content in details(row) if content]
        below = (
            [about, facts(entries, indent=0)] if entries else [about]
        )  # an empty table would be as wide as the terminal
        lines.append((entry(row.spec.name, *below), row.stage, row.owner.plugin))
    yield listing(("pass", "stage", "plugin"), lines, unwrapped_columns=0)
    yield f"\n{counted({'passes': len(pass_rows)})}."


def details(row: PassRow) -> Iterator[tuple[str, str]]:
    """Options and relations, if any."""
    yield (
        "options",
        ", ".join(name if default is None else f"{name}={default}" for name, default in row.options.items()),
    )
    for relation, names in row.relations.items():
        yield relation, ", ".join(names)
