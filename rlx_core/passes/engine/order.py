"""Whether a list of passes can run in the order it is in; decided before the first of them runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rlx_core.errors import Fact, PassOrderError
from rlx_core.passes.engine.base import PassRecord, Property


def check_order(
    passes: Sequence[PassRecord],
    initial: Iterable[Property] = (),
    required: Iterable[Property] = (),
    where: Mapping[int, str] | None = None,
) -> frozenset[Property]:
    """Require that every pass has the properties that it requires and is at a position that its relations allow.

    Args:
        passes: In the order in which they will run.
        initial: Properties that hold at the start.
        required: Properties that must be valid at the end.
        where: Position → the line of configuration that put a pass there, for the error.

    Returns:
        The properties that hold at the end.

    Raises:
        PassOrderError: A requirement is not met; the error names the pass that would ensure the property, where one is listed.
    """
    established = frozenset(initial)
    places = where or {}
    for place, each in enumerate(passes):
        missing = sorted(each.requires - established, key=str)
        if missing:
            raise requirement_error(passes, place, missing[0], places)
        established = (established - each.invalidates) | each.ensures
        check_relations(passes, place, places)
    lacking = sorted(frozenset(required) - established, key=str)
    if lacking:
        makers = [p.name for p in passes if lacking[0] in p.ensures]
        spoilers = [p.name for p in passes if lacking[0] in p.invalidates]
        raise PassOrderError(
            f"pipeline: at its end the program must be {lacking[0]} ({lacking[0].meaning}), and nothing ensures that",
            Fact("ensured by", ", ".join(makers) or "no listed pass"),
            Fact("undone by", ", ".join(undoers_after(passes, lacking[0])) or "nothing"),
            hint=f"run {makers[-1]} after {spoilers[-1]}" if makers and spoilers else None,
        )
    return established


def undoers_after(passes: Sequence[PassRecord], required: Property) -> list[str]:
    """Return the passes that undo `required` after the last one that ensured it."""
    last = max((i for i, p in enumerate(passes) if required in p.ensures), default=-1)
    return [p.name for p in passes[last + 1 :] if required in p.invalidates]


def requirement_error(
    passes: Sequence[PassRecord], place: int, missing: Property, places: Mapping[int, str]
) -> PassOrderError:
    each = passes[place]
    providers = [p.name for p in passes[place + 1 :] if missing in p.ensures]
    undone = [p.name for p in passes[:place] if missing in p.invalidates]
    return PassOrderError(
        f"{each.name}: it requires that the program is {missing}, which does not hold where it stands",
        Fact("requires", f"{missing}: {missing.meaning}" if missing.meaning else missing),
        Fact("place", f"{place + 1} of {len(passes)}", places.get(place)),
        *([Fact("undone by", ", ".join(undone))] if undone else []),
        hint=f"move {providers[0]} before {each.name}" if providers else None,
    )


def check_relations(passes: Sequence[PassRecord], place: int, places: Mapping[int, str]) -> None:
    """Require that no pass stands on the wrong side of one it names in `before` or `after`."""
    each = passes[place]
    for other in passes[:place]:
        if named(each.before, other) or named(other.after, each):
            says = each if named(each.before, other) else other
            raise PassOrderError(
                f"{each.name}: it must come before {other.name}, and comes after it",
                Fact("said by", says.name),
                Fact("place", f"{place + 1} of {len(passes)}", places.get(place)),
                hint=f"move {each.name} before {other.name}",
            )


def named(relations: Iterable[str], other: PassRecord) -> bool:
    # A pass may run several times (clean-up after each group), so it never excludes itself.
    return any(r in (other.name, other.name.partition(".")[2]) for r in relations)
