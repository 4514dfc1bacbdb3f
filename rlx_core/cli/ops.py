"""`rlx ops`: the ops there are, who provides them, which rules are written and which follow from the decomposition."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Any

import typer

from rlx_core.cli.op_rows import OpRow, exact_name, required_row, rows
from rlx_core.cli.session import CliSession


def ops(
    ctx: typer.Context,
    pattern: Annotated[
        str, typer.Argument(help="A name for its whole page, or part of one, or a pattern such as acme.*.")
    ] = "",
    targets: Annotated[bool, typer.Option("--targets", help="How each op runs on each target.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List ops, or show everything about one."""
    session = CliSession.of(ctx)
    if targets:
        from rlx_core.cli import op_targets  # here, because it asks every target, and the listing asks none

        session.answer(
            lambda: op_targets.grid(session, pattern),
            op_targets.grid_json if as_json else None,
            op_targets.grid_layout,
        )
        return
    host = session.host
    name = exact_name(host, pattern) if pattern else None
    if name is not None:
        session.answer(lambda: required_row(host, name), page_json if as_json else None, page_layout)
    else:
        session.answer(lambda: rows(host, pattern), list_json if as_json else None, list_layout)


# --------------------------------------------------------------------------------------------------- output


def op_json(row: OpRow) -> dict[str, Any]:
    """One op with stable keys."""
    return {
        "name": row.name,
        "family": row.family,
        "python": row.python,
        "plugin": row.owner.plugin,
        "distribution": row.owner.distribution,
        "version": row.owner.version,
        "operands": row.operands,
        "attributes": row.attributes,
        "rules": row.rules,
        "summary": row.summary,
        "fault": row.fault,
    }


def list_json(op_rows: list[OpRow]) -> dict[str, Any]:
    """The listing."""
    return {"ops": [op_json(row) for row in op_rows]}


def page_json(row: OpRow) -> dict[str, Any]:
    """Everything about one op."""
    return {
        **op_json(row),
        "signature": row.signature,
        "doc": inspect.getdoc(row.op) or "",
        "category": row.op.category if row.op else None,
        "file": source_of(row),
    }


def source_of(row: OpRow) -> str | None:
    """`file:line` of the class; ops that are rows of a table have only the file of their module."""
    if row.op is None:
        return None
    try:
        file = inspect.getsourcefile(row.op)
        return f"{file}:{inspect.getsourcelines(row.op)[1]}"
    except (OSError, TypeError):
        return str(vars(inspect.getmodule(row.op)).get("__file__")) if inspect.getmodule(row.op) else None


def letters(row: OpRow) -> str:
    """The rules in five letters: capital if written, small if derived, `+` if contributed, a dot if missing."""
    return "".join(
        {"written": rule[0].upper(), "derived": rule[0], "none": "·"}.get(state, "+")
        for rule, state in row.rules.items()
    )


def list_layout(op_rows: list[OpRow]) -> Iterator[Any]:
    """One table per family. Two lines per op: the call and its name in Python, then its description."""
    from rlx_core.cli.tables import cell, counted, entry, listing

    def family(row: OpRow) -> tuple[str, str]:
        return row.owner.plugin, row.family

    for (plugin, name), members in groupby(sorted(op_rows, key=family), key=family):
        lines = []
        for row in members:
            about = cell(row.summary, "red" if row.op is None else "")
            lines.append((entry(row.signature, about), ", ".join(row.python) or "–", letters(row)))
        title = f"{name or 'cannot be imported'} · {plugin}"
        yield listing(("op(operands; attributes)", "in Python", "rules"), lines, title=title, unwrapped_columns=0)
        yield ""
    yield f"{counted({'ops': len(op_rows)})}. Rules: D decompose, V vjp, J jvp, B batch, R reference; a capital"
    yield "is written, a small letter derived, + contributed by another plugin, · missing."
    yield "An op without a name in Python is what others decompose into, or what passes"
    yield "put in their place."


def page_layout(row: OpRow) -> Iterator[Any]:
    """The whole page of one op."""
    from rlx_core.cli.tables import facts, heading

    yield heading(row.signature)
    yield ""
    yield inspect.getdoc(row.op) or "(no documentation)"
    yield ""
    yield facts(
        [
            ("in Python", ", ".join(row.python)),
            ("family", row.family),
            ("plugin", f"{row.owner.plugin} ({row.owner.distribution} {row.owner.version})"),
            ("source", source_of(row)),
            ("category", row.op.category if row.op else ""),
            *((rule, state) for rule, state in row.rules.items()),
        ]
    )
