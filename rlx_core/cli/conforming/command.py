"""`rlx conform`: ops that a target runs without the host, the correctness of their results, and the resulting level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from rlx_core.cli.session import CliSession


def conform(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The target to try.")],
    quick: Annotated[bool, typer.Option("--quick", help="The first sample of each op only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Try a target with samples of every op; print claims, host rows, laws and the level, which `rlx doctor` shows.

    Levels are elementwise, dense, training and full. A law that ends its process has failed. Exits with 1 if a law failed.
    """
    from rlx_core.cli.conforming.laws import in_this_process
    from rlx_core.cli.conforming.processes import in_processes
    from rlx_core.cli.conforming.trial import conformance_of

    session = CliSession.of(ctx)
    # The host of a program that embeds the command is in no other process.
    try_laws = in_processes if session.is_reproducible else in_this_process

    def gather() -> Any:
        trial = conformance_of(session, target, is_quick=quick, try_laws=try_laws)
        record(session, trial)
        return trial

    trial = session.answer(gather, trial_json if as_json else None, layout)
    if any(row.status == "failed" for row in trial.rows):
        raise typer.Exit(1)


def record(session: CliSession, trial: Any) -> None:
    """Write the verdict where `rlx doctor` reads it.

    Raises:
        CacheError, OSError: The cache directory cannot be written.
    """
    import rlx_core
    from rlx_core.cli.conforming.verdicts import Conformance, store_verdict

    owner = session.host.registry().owner("backends", trial.target.partition(":")[0])
    counts = Counter(row.status for row in trial.rows)
    hosts = sum(map(len, trial.host_ops.values()))
    who = (owner.plugin, owner.distribution, owner.version)
    store_verdict(
        Conformance(trial.target, *who, rlx_core.__version__, trial.level, counts["passed"], counts["failed"], hosts)
    )


def trial_json(trial: Any) -> dict[str, Any]:
    """The trial with stable keys."""
    return {
        "target": trial.target,
        "level": trial.level,
        "dtypes": list(trial.dtypes),
        "families": {family: dict(counts) for family, counts in by_family(trial).items()},
        "host": trial.host_ops,
        "failed": [
            {"op": r.op, "program": r.program, "law": r.law, "reason": r.reason}
            for r in trial.rows
            if r.status == "failed"
        ],
    }


def by_family(trial: Any) -> dict[str, Counter[str]]:
    """Family → number of law cases by status."""
    counts: dict[str, Counter[str]] = {}
    for row in trial.rows:
        counts.setdefault(row.family, Counter())[row.status] += 1
    return dict(sorted(counts.items()))


def layout(trial: Any) -> Iterator[Any]:
    """Claims, a row for each family, host rows by name, failures, and the verdict."""
    from rlx_core.cli.conforming.levels import LEVELS
    from rlx_core.cli.tables import facts, heading, listing

    yield f"claimed dtypes: {', '.join(trial.dtypes) or 'none'}"
    kinds = ["passed", "failed", "host", "unclaimed"]
    kinds += ["untried"] if any(row.status == "untried" for row in trial.rows) else []
    lines = [(family, *(counts[kind] for kind in kinds)) for family, counts in by_family(trial).items()]
    yield listing(("family", *(f"{kind}>" for kind in kinds)), lines)
    if trial.host_ops:
        yield heading("host rows")
        yield facts((family, ", ".join(ops)) for family, ops in trial.host_ops.items())
    failed = [row for row in trial.rows if row.status == "failed"]
    if failed:
        yield heading("failed laws")
        yield facts((f"{row.law} of {row.program}", row.reason) for row in failed)
    yield f"{trial.target}: level {trial.level}"
    for level in LEVELS:
        missing = sorted({row.op for row in trial.of_level(level) if row.status != "passed"})
        if missing:
            yield f"not {level.name}: {', '.join(missing)}"
            return
