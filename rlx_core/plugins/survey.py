"""One row of the plugin listing, from everything that is known about a plugin."""

from __future__ import annotations

from collections.abc import Mapping

from rlx_core.plugins.collect import Claim, Collected
from rlx_core.plugins.entry import PluginEntry
from rlx_core.plugins.registry import Refusal, Registry
from rlx_core.plugins.states import PluginStatus, State, Verdict


def status(
    entry: PluginEntry, verdict: Verdict | None, collected: Collected | None, registry: Registry
) -> PluginStatus:
    """The row of one plugin."""
    claims = collected.claims if collected else ()
    lost = [each for each in registry.overrides if each.loser.entry.key == entry.key]
    taken = [each for each in registry.overrides if each.winner.entry.key == entry.key]
    faults = tuple(f for f in registry.faults if (f.owner.plugin, f.owner.distribution) == entry.key[:2])
    named = {(fault.kind, fault.name) for fault in faults}
    contested = {
        claim.name: registry.refused[claim.kind, claim.name]
        for claim in refused(claims, registry)
        if (claim.kind, claim.name) not in named
    }
    state = verdict.state if verdict else None
    remarks = [verdict.reason] if verdict and verdict.reason else []
    if state is not State.UNAVAILABLE:  # its reason is the very reason why its backend is refused
        remarks += [remark(name, refusal, entry) for name, refusal in contested.items()]
    remarks += [f"{each.loser.name} is overridden by {each.winner.entry.name} ({each.source})" for each in lost]
    remarks += [f"overrides {each.loser.name} of {each.loser.entry.name} ({each.source})" for each in taken]
    return PluginStatus(
        name=entry.name,
        state=State.SHADOWED if lost and state is State.ACTIVE else state,
        reason="; ".join(remarks),
        distribution=entry.distribution,
        version=entry.version,
        file=collected.file if collected else entry.file,
        mend=verdict.mend if verdict else None,
        provides=provided(claims),
        contested=tuple(contested),
        overrides={each.loser.name: each.loser.entry.name for each in taken},
        overridden={each.loser.name: each.winner.entry.name for each in lost},
        failure=verdict.failure if verdict else None,
        faults=faults,
    )


def remark(name: str, refusal: Refusal, entry: PluginEntry) -> str:
    """Return why a name of this plugin cannot be used: another plugin's claim, or another fault."""
    rivals = [claim for claim in refusal.claims if claim.entry.key != entry.key]
    if not rivals:
        return refusal.message
    others = ", ".join(f"{claim.entry.name} ({claim.provenance})" for claim in rivals)
    return f"{name} is also defined by {others}"


def provided(claims: tuple[Claim, ...]) -> Mapping[str, tuple[str, ...]]:
    """The names that a plugin claims, by kind."""
    names: dict[str, list[str]] = {}
    for claim in claims:
        names.setdefault(claim.kind, []).append(claim.name)
    return {kind: tuple(sorted(each)) for kind, each in names.items()}


def refused(claims: tuple[Claim, ...], registry: Registry) -> list[Claim]:
    """Return the claims of a plugin that cannot be used."""
    return [claim for claim in claims if (claim.kind, claim.name) in registry.refused]
