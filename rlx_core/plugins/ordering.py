"""The order of records of one kind: `before` and `after` first, then `priority`, then the name."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from rlx_core.contributions import Contribution
from rlx_core.errors import CycleError, Fact
from rlx_core.system.records import frozen


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
