"""Positions of contributed passes: `before` and `after` of their records put one that is included in its place, and bind one
that is listed.

A pipeline lists many passes several times, so that both mean one time each: `after` wants some run of it
earlier, and `before` some run later. A pass that the pipeline does not list is no constraint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_core.contributions import Contribution, PassSpec
from rlx_core.errors import ConfigError, Fact, PassOrderError
from rlx_core.pipeline.config.records import Configuration, Entry, split_entry
from rlx_core.pipeline.set_up import full_name
from rlx_core.plugins.registry import Registry
from rlx_core.system.records import frozen


@frozen
class Line:
    """One line of a pipeline: its list, its source, and its entry."""

    stage: str
    where: str
    entry: Entry

    @property
    def name(self) -> str:
        """The full name of the pass."""
        return full_name(split_entry(self.entry, self.where)[0])


def with_included(lines: Sequence[Line], configuration: Configuration, registry: Registry) -> list[Line]:
    """Return the lines with the ones that the configuration includes, each at the position of its record.

    Raises:
        ConfigError: A record does not determine a position for its pass in this pipeline.
        PassOrderError: No position satisfies the record.
    """
    result = list(lines)
    entries = configuration.included.items()
    added: dict[str, tuple[str, Entry]] = {}
    for where, entry in entries:
        name = full_name(split_entry(entry, where)[0])
        first, _ = added.setdefault(name, (where, entry))
        if first != where:
            raise ConfigError(f"include: {name} is listed twice", Fact("first", first), Fact("second", where))
    # In the registry's order, which respects the relations between records, and not in the order of the configuration.
    known = [*registry.passes, *registry.rulesets]
    for name in sorted(added, key=lambda each: known.index(each) if each in known else len(known)):
        where, entry = added[name]
        spec = record_of(registry, name)
        stage = (spec.stage if isinstance(spec, PassSpec) else None) or "mir"
        line = Line(stage, where, entry)
        if spec is None:  # resolving the line reports the missing provider
            result.append(line)
            continue
        places = [i for i, each in enumerate(result) if each.stage == stage]
        place = place_for(spec, [result[i].name for i in places], stage, configuration)
        result.insert(places[place] if place < len(places) else places[-1] + 1, line)
    return result


def place_for(spec: Contribution, listed: Sequence[str], stage: str, configuration: Configuration) -> int:
    """Return the index of a new pass in the list: right after the last pass of its `after`, else before the first of `before`."""
    later_than = [listed.index(name) + 1 for name in spec.after if name in listed]
    sooner_than = [listed.index(name) for name in spec.before if name in listed]
    if not later_than and not sooner_than:
        raise ConfigError(
            f"include: {spec.name} does not say where it belongs in the {stage} list of {configuration.use}",
            Fact("after", ", ".join(spec.after) or "nothing"),
            Fact("before", ", ".join(spec.before) or "nothing"),
            hint=f"list {spec.name} in a pipeline of your own, or give its PassSpec `before` or `after`",
        )
    place = max(later_than) if later_than else min(sooner_than)
    last = {name: i for i, name in enumerate(listed)}
    late = [name for name in spec.before if last.get(name, place) < place]
    if late:
        raise PassOrderError(
            f"{spec.name}: it must come after {', '.join(spec.after)} and before {late[0]}, which stands before that",
            Fact("pipeline", configuration.use),
        )
    return place


def check_places(names: Sequence[str], origins: Mapping[int, str], registry: Registry) -> None:
    """Require that each pass of one list is at a position that its record allows.

    Raises:
        PassOrderError: One does not.
    """
    first = {name: len(names) - 1 - i for i, name in enumerate(reversed(names))}
    last = {name: i for i, name in enumerate(names)}
    for place, name in enumerate(names):
        spec = record_of(registry, name)
        if spec is None:
            continue
        late = [other for other in spec.after if first.get(other, -1) > place]
        early = [other for other in spec.before if last.get(other, len(names)) < place]
        if late or early:
            other, side = (late[0], "after") if late else (early[0], "before")
            raise PassOrderError(
                f"{name}: its record says that it comes {side} {other}, and it does not",
                Fact("said by", registry.owner(kind_of(registry, name), name)),
                Fact("place", f"{place + 1} of {len(names)}", origins.get(place)),
                hint=f"move {name} {side} {other}",
            )


def record_of(registry: Registry, name: str) -> Contribution | None:
    """The record of a pass or a rule set."""
    record: Contribution | None = registry.passes.get(name) or registry.rulesets.get(name)
    return record


def kind_of(registry: Registry, name: str) -> str:
    return "passes" if name in registry.passes else "rulesets"
