"""`rlx doctor`: problems of this installation, with remedies.

Each check is independent, and one that raises is itself a finding: this command must work when no other does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from rlx_core.cli.checking import checks
from rlx_core.cli.checking.checks import Finding
from rlx_core.cli.session import CliSession, quietly
from rlx_core.errors import RlxError
from rlx_core.plugins import PluginHost


def doctor(ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Check this installation and print remedies; exits with 1 if there is a problem."""
    session = CliSession.of(ctx)
    results = session.answer(lambda: findings(session), findings_json if as_json else None, layout)
    if any(each.verdict == "wrong" for each in results):
        raise typer.Exit(1)


# ------------------------------------------------------------------------------------------------ gathering


def findings(session: CliSession) -> list[Finding]:
    """All findings, in the order of the dependences of the checks."""
    host, configuration = usable_host(session)
    may_load = configuration.verdict == "ok"
    return checks.gathered(
        {
            "python": checks.python,
            "dependencies": checks.dependencies,
            "configuration": lambda: [configuration],
            "plugins": lambda: checks.plugins(host, may_load),
            "contributions": lambda: checks.contributions(host, may_load),
            "targets": lambda: checks.targets(host, may_load),
            "cache": checks.caches,
            "environment": lambda: checks.environment(host, may_load),
        }
    )


def usable_host(session: CliSession) -> tuple[PluginHost, Finding]:
    """A host, also after errors, and the findings about the configuration.

    If the file that may block plugins cannot be read, the host has the other policies, and nothing may be imported.
    """
    file = session.config_path
    try:
        host = session.host
        if file is None:
            return host, Finding("file", "ok", "none from here upwards; the defaults hold")
        from rlx_core.pipeline.config.reading import read_sources
        from rlx_core.pipeline.set_up import activate_options

        sources = read_sources(file)
        options = quietly(lambda: activate_options(host, sources.option_names())).options
        sources.configuration({}, options)
        return host, Finding("file", "ok", str(file))
    except RlxError as error:
        facts = "; ".join(f"{fact.label}: {fact.value}" for fact in error.facts if fact.label != "file")
        message = f"{error.message} ({facts})" if facts and len(error.facts) > 1 else error.message
        finding = Finding("file", "wrong", f"{file}: {message}", error.hint)
        return session.make_host(session.policy_without_file), finding


# --------------------------------------------------------------------------------------------------- output


def findings_json(reported: list[Finding]) -> dict[str, Any]:
    """Everything with stable keys."""
    rows = [
        {"section": f.section, "name": f.name, "verdict": f.verdict, "found": f.found, "mend": f.mend} for f in reported
    ]
    return {"ok": all(each.verdict != "wrong" for each in reported), "checks": rows}


def layout(reported: list[Finding]) -> Iterator[Any]:
    """One block per section with aligned columns, and at the end the remedies."""
    from rlx_core.cli.tables import facts, heading

    width = max(len(each.name) for each in reported)
    for section in dict.fromkeys(each.section for each in reported):
        yield heading(section)
        yield block([each for each in reported if each.section == section], width)
    wrong = [each for each in reported if each.verdict == "wrong"]
    yield ""
    if not wrong:
        yield "Nothing is wrong."
        return
    yield heading(f"{len(wrong)} {'thing is' if len(wrong) == 1 else 'things are'} wrong")
    # Several things of one plugin may be mended by one command.
    yield facts(dict.fromkeys((f"{each.section} {each.name}", each.mend or each.found) for each in wrong))


def block(reported: list[Finding], width: int) -> Any:
    """The findings of one section: the verdict, the name, the observation and below it the remedy."""
    from rich.console import Group
    from rich.table import Table

    from rlx_core.cli.tables import cell

    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(width=7, no_wrap=True)
    table.add_column(width=min(width, 24), overflow="fold")
    table.add_column(overflow="fold")
    for each in reported:
        lines = [cell(each.found)]
        if each.mend and each.verdict != "ok":
            lines.append(cell(f"mend: {each.mend}", "cyan"))
        mark = cell(f"  {each.verdict}", {"ok": "green", "note": "yellow", "wrong": "bold red"}[each.verdict])
        table.add_row(mark, cell(each.name), Group(*lines))
    return table
