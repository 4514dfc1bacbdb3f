"""From claims to a registry: overrides applied, conflicts and cycles refused by name, the rest in order.

The order of records of one kind: `before` and `after` first, then `priority`, then the name.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from attrs import evolve

from rlx_core.contributions import KINDS, Contribution, KernelSpec
from rlx_core.errors import ConfigError, CycleError, DeviceUnavailableError, Fact, PluginError
from rlx_core.plugins.collect import Claim
from rlx_core.plugins.entry import Domains, PluginEntry, PluginOrigin, domain_of
from rlx_core.plugins.faults import ContributionFault
from rlx_core.plugins.policy import Choice, PluginPolicy
from rlx_core.plugins.registry import Key, Override, Refusal, Registry
from rlx_core.plugins.states import Verdict, singular
from rlx_core.system.records import frozen


def freeze(
    claims: Iterable[Claim],
    policy: PluginPolicy,
    unavailable: Mapping[tuple[str, str, str], str],
    absent: Iterable[tuple[PluginEntry, Verdict]],
    domains: Domains,
    left_out: dict[Key, ContributionFault],
) -> Registry:
    """The registry of these claims. The order in which they come makes no difference.

    Args:
        unavailable: For plugins whose device is out of reach, by entry key, the reason.
        domains: The owners of each domain, among active and inactive plugins.
        left_out: Contributions that proved unusable; this registry reads and extends the mapping.
    """
    absent = tuple(absent)
    unusable = {entry.key for entry, _ in absent}
    rivals: dict[Key, list[Claim]] = {}
    for claim in sorted(told_apart(claims, policy), key=lambda each: (each.kind, each.name, each.entry.key)):
        rivals.setdefault((claim.kind, claim.name), []).append(claim)
    won: dict[Key, Claim] = {}
    refused: dict[Key, Refusal] = {}
    overrides: list[Override] = []
    faults: list[ContributionFault] = []
    for key, group in rivals.items():
        allowed = [claim for claim in group if may_have(claim, policy, domains)]
        if len(allowed) < len(group):
            faults += [outside(claim, domains) for claim in group if claim not in allowed]
        if not allowed and all(entry.key in unusable for entry in domains[domain_of(*key) or ""]):
            continue  # using it raises the reason why its plugin is unavailable
        decision = decide(allowed, policy, unavailable) if allowed else not_theirs(group, domains)
        if isinstance(decision, Refusal):
            refused[key] = decision
            continue
        won[key] = decision
        if key[1] in policy.override:
            source = policy.override[key[1]].source
            overrides += [Override(decision, loser, source) for loser in group if loser is not decision]
    records: dict[str, dict[str, Contribution]] = {kind: {} for kind in KINDS}
    for (kind, name), claim in won.items():
        records[kind][name] = claim.record
    tables = {kind: ordered_table(kind, of_kind, won, refused) for kind, of_kind in records.items()}
    return Registry(
        **tables,  # type: ignore[arg-type]  # the kind of each record was checked when it was collected
        claims=MappingProxyType(won),
        refused=MappingProxyType(refused),
        overrides=tuple(overrides),
        absent=absent,
        faults=tuple(faults),
        left_out=left_out,
    )


def told_apart(claims: Iterable[Claim], policy: PluginPolicy) -> Iterator[Claim]:
    """Yield the claims; kernel tables that several plugins provide under one name get their plugin's name as a suffix.

    No author chose such a name, so there is no conflict to resolve; and a target must not lose kernels because two packages
    that extend it are both installed. A configuration that chooses one of them takes precedence.
    """
    result = list(claims)
    times = Counter(claim.name for claim in result if claim.kind == "kernels")
    owners = Counter((claim.name, claim.entry.name) for claim in result if claim.kind == "kernels")
    for claim in result:
        if claim.kind != "kernels" or times[claim.name] == 1 or claim.name in policy.override:
            yield claim
            continue
        assert isinstance(claim.record, KernelSpec), "the kind of each record was checked when it was collected"
        plugin, distribution = claim.entry.name, claim.entry.distribution
        record = evolve(claim.record, owner=plugin if owners[claim.name, plugin] == 1 else f"{distribution}.{plugin}")
        yield evolve(claim, name=record.name, record=record)


def may_have(claim: Claim, policy: PluginPolicy, domains: Domains) -> bool:
    """Return whether a plugin may use a name: it is in no domain of another plugin, or the configuration assigns it."""
    if claim.name in policy.override:
        return True
    domain = domain_of(claim.kind, claim.name)
    owners = () if domain is None else domains.get(domain, ())
    return not owners or claim.entry in owners


def outside(claim: Claim, domains: Domains) -> ContributionFault:
    """Return the fault of a name in the domain of another plugin, which an installation alone cannot take over."""
    owner = domains[domain_of(claim.kind, claim.name) or ""][0]
    reason = f"the name belongs to {owner.name} ({owner.distribution} {owner.version})"
    mend = (
        f"call it {claim.entry.name}, or switch the plugin off: RLX_PLUGINS_BLOCK={claim.entry.name}"
        if claim.kind == "backends"
        else f"call it {claim.entry.name}.…, or accept it in the configuration: "
        f'[plugins.override] "{claim.name}" = "{claim.entry.name}"'
    )
    return ContributionFault(claim.kind, claim.name, claim.provenance, reason, claim.provenance.place, mend)


def not_theirs(group: list[Claim], domains: Domains) -> Refusal:
    """Return the refusal of a name that only plugins outside of its domain claim."""
    fault = outside(group[0], domains)
    message = f"{fault.name}: {group[0].entry.name} offers this {singular(fault.kind)}, and {fault.reason}"
    # No hint for backends: the user of a device does not want another plugin's backend under its name.
    hint = None if fault.kind == "backends" else fault.mend
    return Refusal(tuple(group), PluginError, message, tuple(witness(claim) for claim in group), hint)


def decide(
    group: list[Claim], policy: PluginPolicy, unavailable: Mapping[tuple[str, str, str], str]
) -> Claim | Refusal:
    """Resolve the owner of a name: the plugin that the configuration names, else the only candidate, else a refusal."""
    name, kind = group[0].name, group[0].kind
    choice = policy.override.get(name)
    if choice is not None:
        chosen = [claim for claim in group if claim.entry.matches(choice.word)]
        if not chosen:
            return useless_override(group, choice)
        group = chosen
    if kind == "backends":
        reachable = [claim for claim in group if claim.entry.key not in unavailable]
        if not reachable:
            return out_of_reach(group, unavailable[group[0].entry.key])
        group = reachable
    return group[0] if len(group) == 1 else contested(group)


def contested(group: list[Claim]) -> Refusal:
    """Return the refusal of a name that several plugins define; both are shown, and how to choose."""
    name, kind = group[0].name, group[0].kind
    plugins = {claim.entry.name for claim in group}
    # Two distributions may use one name for their plugins; then only the distributions' names differ.
    words = [claim.entry.name if len(plugins) == len(group) else claim.entry.distribution for claim in group]
    choices = " or ".join(f'"{word}"' for word in words)
    return Refusal(
        tuple(group),
        PluginError,
        f"{name}: {len(group)} plugins define this {singular(kind)}",
        tuple(witness(claim) for claim in group),
        f'choose one in the configuration: [plugins.override] "{name}" = {choices}',
    )


def witness(claim: Claim) -> Fact:
    """One of several claims, with its plugin's distribution, version, state and file."""
    owner = claim.provenance
    return Fact(claim.entry.name, f"{owner.distribution} {owner.version} (active)", f"{owner.file}:{owner.line}")


def useless_override(group: list[Claim], choice: Choice) -> Refusal:
    """Return the refusal of a name that the configuration assigns to a plugin that does not define it."""
    name = group[0].name
    return Refusal(
        tuple(group),
        ConfigError,
        f"plugins.override: `{choice.word}` does not provide {name}",
        (Fact("file", choice.source), *(witness(claim) for claim in group)),
    )


def out_of_reach(group: list[Claim], reason: str) -> Refusal:
    """A backend whose hardware, driver or library is missing here."""
    name = group[0].name
    facts = (Fact("plugin", group[0].provenance), Fact("missing", reason))
    return Refusal(tuple(group), DeviceUnavailableError, f"{name}: this target cannot be used here", facts)


def ordered_table(
    kind: str, records: dict[str, Contribution], won: dict[Key, Claim], refused: dict[Key, Refusal]
) -> Mapping[str, Contribution]:
    """Return one kind's records in order. Records in a cycle are refused, rlx's own only among themselves."""
    while True:
        try:
            names = ordered(records)
        except CycleError as error:
            culprits = sorted(members(error))
            foreign = [name for name in culprits if won[kind, name].entry.origin is not PluginOrigin.BUILTIN]
            for name in foreign or culprits:
                claim = won.pop((kind, name))
                del records[name]
                facts = (*error.facts, Fact("plugin", claim.provenance))
                refused[kind, name] = Refusal((claim,), CycleError, f"{name}: {error.message}", facts)
        else:
            return MappingProxyType({name: records[name] for name in names})


# ------------------------------------------------------------------------------------------- order


@frozen
class Relation:
    """The constraint that `first` comes before `second`, declared by the record `said_by`."""

    first: str
    second: str
    said_by: str

    def __str__(self) -> str:
        if self.said_by == self.first:
            return f"before {self.second}"
        return f"after {self.first}"


def ordered(records: Mapping[str, Contribution]) -> list[str]:
    """Return the names in order. Two runs over the same records agree, whatever the order of the mapping.

    Raises:
        CycleError: the relations cannot all hold; the message has each relation of one cycle.
    """
    relations = relations_of(records)
    followers: dict[str, list[str]] = {name: [] for name in records}
    waiting = dict.fromkeys(records, 0)
    for relation in relations:
        followers[relation.first].append(relation.second)
        waiting[relation.second] += 1
    ready = [(-records[name].priority, name) for name, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order: list[str] = []
    while ready:
        _, name = heapq.heappop(ready)
        order.append(name)
        for follower in followers[name]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, (-records[follower].priority, follower))
    if len(order) < len(records):
        raise cycle_error(find_cycle(relations, set(records) - set(order)))
    return order


def relations_of(records: Mapping[str, Contribution]) -> list[Relation]:
    """Yield every relation between present records, in a fixed order."""
    relations: list[Relation] = []
    for name in sorted(name for name, record in records.items() if record.before or record.after):
        relations += [Relation(name, other, name) for other in records[name].before if other in records]
        relations += [Relation(other, name, name) for other in records[name].after if other in records]
    return relations


def find_cycle(relations: list[Relation], among: set[str]) -> list[Relation]:
    """Return one cycle among names that all wait for one another."""
    # Each of them has a predecessor that is stuck too, so walking backwards must come round.
    into = {each.second: each for each in reversed(relations) if each.first in among and each.second in among}
    name = min(among)
    seen: dict[str, int] = {}
    walk: list[Relation] = []
    while name not in seen:
        seen[name] = len(walk)
        walk.append(into[name])
        name = into[name].first
    return walk[seen[name] :][::-1]


def cycle_error(cycle: list[Relation]) -> CycleError:
    """Return the error that lists a cycle, beginning at its smallest name."""
    start = min(range(len(cycle)), key=lambda index: cycle[index].first)
    cycle = cycle[start:] + cycle[:start]
    path = " → ".join([*(relation.first for relation in cycle), cycle[0].first])
    facts = [Fact(relation.said_by, f"says it comes {relation}") for relation in cycle]
    return CycleError(f"order: {path} is a cycle", *facts)


def members(error: CycleError) -> set[str]:
    """Return the names whose constraints form a cycle."""
    return {fact.label for fact in error.facts}
