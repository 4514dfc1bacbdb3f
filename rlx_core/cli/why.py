"""`rlx why`: where an op or a pass comes from, and which kernel runs an op; with everything that was passed over."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from attrs import asdict
from typer.core import TyperGroup

from rlx_core.cli.op_rows import full_name
from rlx_core.cli.session import CliSession
from rlx_core.contributions import RuleSpec
from rlx_core.errors import RlxError
from rlx_core.pipeline.contributed import expectation
from rlx_core.plugins import Claim, PluginHost, Provenance, Registry
from rlx_core.plugins.faults import fault_of
from rlx_core.system.records import frozen


class Why(TyperGroup):
    """The questions; the default for an op is its kernel."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["kernel", *args]
        return super().resolve_command(ctx, args)


why = typer.Typer(
    cls=Why,
    help="Explain the origin of an op, a pass or a kernel selection. `rlx why OP` is short for `rlx why kernel OP`.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@frozen
class Account:
    """Information about one name.

    Args:
        owner: Its provider; `None` if every claim is refused, with the reason in `refusal`.
        address: The address that is imported at first use.
        source: The file of the class, which need not be the plugin's module.
        rivals: Others that claim it too.
        overrides: Plugins that the configuration overrides, each with the origin of the setting.
        rules: Rules that plugins add to an op, by kind, each with the reason if it is skipped.
        used_in: Pipelines that list a pass, each with its position.
    """

    kind: str
    name: str
    owner: Provenance | None
    address: str | None
    source: str | None
    fault: str | None
    refusal: str | None
    hint: str | None
    rivals: tuple[Provenance, ...]
    overrides: tuple[tuple[Provenance, str], ...]
    rules: tuple[tuple[str, Provenance, str | None], ...]
    used_in: tuple[str, ...]


@why.command("op")
def why_op(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="An op; rlx. may be left out.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the provider of an op, other claims, and added rules."""
    session = CliSession.of(ctx)

    def gather() -> Account:
        return account(session.host, "ops", full_name(session.host, name))

    session.answer(gather, account_json if as_json else None, layout)


@why.command("pass")
def why_pass(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="A pass or a set of rewrite rules; rlx. may be left out.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say who provides a pass, and which pipelines use it."""
    session = CliSession.of(ctx)

    def gather() -> Account:
        kind, full = pass_name(session.host.activate_all(), name)
        return account(session.host, kind, full)

    session.answer(gather, account_json if as_json else None, layout)


@why.command("kernel")
def why_kernel(
    ctx: typer.Context,
    op: Annotated[str, typer.Argument(help="An op; rlx. may be left out.")],
    target: Annotated[
        str | None, typer.Option(metavar="NAME", help="The device; by default what the configuration says.")
    ] = None,
    types: Annotated[
        str | None,
        typer.Option(metavar="TYPES", help='Operand types such as "f32[4, 8], f32[8]"; by default those of a sample.'),
    ] = None,
    attr: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An attribute of the op; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which kernel runs an op, and why not another one."""
    from rlx_core.cli import why_kernel as choice  # compiles a little program, which the other two need not import

    session = CliSession.of(ctx)
    session.answer(
        lambda: choice.choose(session, op, target, types, attr or []),
        choice.choice_json if as_json else None,
        choice.layout,
    )


# ------------------------------------------------------------------------------------------------ gathering


def account(host: PluginHost, kind: str, name: str) -> Account:
    """All information about a name.

    Raises:
        RlxError: No working plugin claims it; the error has the causes of failed ones.
    """
    registry = host.activate_all()
    refusal = registry.refused.get((kind, name))
    if refusal is None:
        host.require(kind, name)
    won = registry.claims.get((kind, name))
    claims: tuple[Claim, ...] = refusal.claims if refusal else ()
    fault, source = located(registry, kind, name) if won else (None, None)
    losers = [each for each in registry.overrides if (each.winner.kind, each.winner.name) == (kind, name)]
    added = registry.rules_for(name) if kind == "ops" else {}
    return Account(
        kind,
        name,
        won.provenance if won else None,
        str(registry.require(kind, name).load) if won else None,
        source,
        fault,
        refusal.message if refusal else None,
        refusal.hint if refusal else None,
        tuple(claim.provenance for claim in claims),
        tuple((each.loser.provenance, each.source) for each in losers),
        tuple(
            (rule, registry.owner("rules", spec.name), rule_state(registry, spec))
            for rule, spec in sorted(added.items())
        ),
        tuple(places(registry, name)) if kind != "ops" else (),
    )


def located(registry: Registry, kind: str, name: str) -> tuple[str | None, str | None]:
    """Why the thing itself cannot be imported, or where it is written."""
    try:
        loaded = registry.load(kind, name, expectation(kind, registry.require(kind, name), registry))
    except RlxError as error:
        return fault_of(registry.claims[kind, name], error).reason, None
    try:
        return None, f"{inspect.getsourcefile(loaded)}:{inspect.getsourcelines(loaded)[1]}"
    except (OSError, TypeError):  # made by a factory: a row of a table, or a set of rules, is no block of source
        return None, None


def rule_state(registry: Registry, spec: RuleSpec) -> str | None:
    """Why a contributed rule is left out, or `None` if it is used."""
    return located(registry, "rules", spec.name)[0]


def pass_name(registry: Registry, word: str) -> tuple[str, str]:
    """The kind and the full name of a word in a pipeline; an unknown word is considered a pass."""
    for full in (word, f"rlx.{word}"):
        for kind in ("passes", "rulesets"):
            if full in registry.table(kind) or (kind, full) in registry.refused:
                return kind, full
    return "passes", word


def places(registry: Registry, name: str) -> Iterator[str]:
    """Where contributed pipelines list a pass, as `pipeline: stage[place]`."""
    for pipeline, spec in registry.pipelines.items():
        positions = [
            f"{stage}[{place}]"
            for stage, entries in spec.config.items()
            if isinstance(entries, list | tuple)
            for place, entry in enumerate(entries)
            if name in (listed := entry if isinstance(entry, str) else next(iter(entry), ""), f"rlx.{listed}")
        ]
        if positions:
            yield f"{pipeline}: {', '.join(positions)}"


# --------------------------------------------------------------------------------------------------- output


def provenance_json(provenance: Provenance | None) -> dict[str, Any] | None:
    """One owner with stable keys."""
    return None if provenance is None else asdict(provenance)


def account_json(account: Account) -> dict[str, Any]:
    """The account with stable keys."""
    return {
        "kind": account.kind,
        "name": account.name,
        "usable": account.refusal is None and account.fault is None,
        "owner": provenance_json(account.owner),
        "address": account.address,
        "source": account.source,
        "fault": account.fault,
        "refused": account.refusal,
        "hint": account.hint,
        "claimed_by": [provenance_json(each) for each in account.rivals],
        "overrides": [
            {**(provenance_json(loser) or {}), "said_in": declaration} for loser, declaration in account.overrides
        ],
        "rules": {rule: {**(provenance_json(owner) or {}), "fault": fault} for rule, owner, fault in account.rules},
        "used_in": list(account.used_in),
    }


def layout(account: Account) -> Iterator[Any]:
    """The account as labelled lines."""
    from rlx_core.cli.tables import facts, heading

    yield heading(account.refusal or account.name)
    rows: list[tuple[str, object]] = []
    if account.owner is not None:
        rows += [("plugin", f"{account.owner.plugin} ({account.owner.distribution} {account.owner.version})")]
        rows += [("registered", declared(account.owner)), ("imports", account.address)]
        rows += [("source", account.source), ("fault", account.fault)]
    rows += [("claimed by", f"{each.plugin} ({each})") for each in account.rivals]
    rows += [("taken from", f"{loser.plugin} ({loser}) by {declaration}") for loser, declaration in account.overrides]
    for rule, owner, fault in account.rules:
        rows.append((f"{rule} rule", f"{owner.plugin} ({owner})" + (f", left out: {fault}" if fault else "")))
    rows += [("used in", place) for place in account.used_in]
    rows += [("mend", account.hint)]
    yield facts(rows)


def declared(owner: Provenance) -> str:
    """The line of the plugin that registers it."""
    return owner.file if owner.line is None else f"{owner.file}:{owner.line}"
