"""Activation: import one plugin, register it, call its hooks, and check every record; all of it, or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Final

from rlx_core.contributions import KINDS, Contribution, OpFamily, OpSpec
from rlx_core.contributions.records import noting_newer_fields
from rlx_core.errors import Fact, PluginError
from rlx_core.hooks import HOOKS
from rlx_core.plugins.digest import record_digest
from rlx_core.plugins.entry import PluginEntry, PluginOrigin, file_of
from rlx_core.plugins.manager import Hook, PluginManager, source_of
from rlx_core.plugins.states import Provenance
from rlx_core.system.records import frozen

MAX_RECORDS: Final = 100_000
"""Maximum number of records of one hook: a generator without an end must not stop the process."""


@frozen
class Claim:
    """A plugin's claim to one name of one kind, with its record.

    Attributes:
        original: The record as the plugin gave it; in `record` its plugin may have been put into its name.
    """

    kind: str
    name: str
    record: Contribution
    entry: PluginEntry
    provenance: Provenance
    original: Contribution

    @property
    def digest(self) -> str:
        """Digest of the record as the plugin returned it; computed lazily, because reading an array file or a package does not
        need it.
        """
        return record_digest(self.original, self.entry)


@frozen
class Collected:
    """Everything that one plugin contributed, complete and checked.

    Args:
        unavailable: Why its device cannot be reached here, or `None`.
        skipped: Hooks and fields of records that this rlx-core does not know yet.
    """

    file: str
    claims: tuple[Claim, ...]
    unavailable: str | None = None
    skipped: tuple[str, ...] = ()


def collect(entry: PluginEntry, manager: PluginManager, reserved: Mapping[tuple[str, str], Claim]) -> Collected:
    """Activate one plugin. Exceptions of its code are raised, and then leave the manager as it was.

    Args:
        reserved: Names, by kind, that this plugin may not claim, and their owners.
    """
    plugin = entry.load()
    if manager.holds(plugin):
        return Collected(file_of(plugin), ())  # a second entry point for the same module adds nothing
    manager.register(plugin, "|".join(entry.key))
    try:
        hooks = manager.implementations(plugin)
        skipped = [f"the hook {name}" for name in manager.newer_hooks(plugin)]
        unavailable = availability(hooks.get("rlx_availability", []))
        file = file_of(plugin) or entry.file
        with noting_newer_fields() as fields:
            claims = tuple(
                claim
                for hook, kind in HOOKS.items()
                for function in hooks.get(hook, [])
                for claim in claims_of(entry, hook, kind, function, file)
            )
        skipped += [f"the field {each}" for each in dict.fromkeys(fields)]
        refuse_repetition(claims)
        refuse_reserved(claims, reserved)
    except BaseException:
        manager.unregister(plugin)
        raise
    return Collected(file, claims, unavailable, tuple(skipped))


def availability(functions: list[Hook]) -> str | None:
    """Return the reason that a plugin reports for being unavailable; a library that cannot be loaded here is one too."""
    for function in functions:
        try:
            reason = function()
        except (ImportError, OSError) as error:
            return f"{type(error).__name__}: {error}"
        if not (reason is None or isinstance(reason, str)):
            raise PluginError(f"rlx_availability returned {type(reason).__name__}, not a reason or `None`")
        if reason:
            return reason
    return None


def claims_of(entry: PluginEntry, hook: str, kind: str, function: Hook, file: str) -> Iterable[Claim]:
    """The claims that one hook implementation makes."""
    written_in, line = source_of(function)
    provenance = Provenance(entry.name, entry.distribution, entry.version, written_in or file, line)
    for record in records(hook, kind, function()):
        if entry.origin is not PluginOrigin.BUILTIN:
            # raises for a record that cannot be hashed, while that is still its plugin's fault alone
            record_digest(record, entry)
        yield Claim(kind, record.name, record, entry, provenance, original=record)


def records(hook: str, kind: str, returned: object) -> Iterable[Contribution]:
    """Flatten the return value of a hook, and refuse objects that are not records of its kind."""
    if returned is None:
        return []
    if isinstance(returned, str | bytes | dict) or not isinstance(returned, Iterable):
        returned = [returned]  # one record, or an object that the next step refuses by name
    result = list(islice(chain.from_iterable(expand(hook, kind, each) for each in returned), MAX_RECORDS + 1))
    if len(result) > MAX_RECORDS:
        raise PluginError(f"{hook} returned more than {MAX_RECORDS} records, or has no end")
    return result


def expand(hook: str, kind: str, item: object) -> Iterable[Contribution]:
    """Return the records of one returned item: an op's class and a family of ops are expanded to their records."""
    if kind == "ops" and isinstance(item, OpFamily):
        return list(item)
    if kind == "ops" and isinstance(item, type):
        return [OpSpec.of(item)]
    if isinstance(item, KINDS[kind]):
        return [item]
    type_name = item.__name__ if isinstance(item, type) else type(item).__name__
    raise PluginError(f"{hook} returned {type_name}, not {KINDS[kind].__name__}", Fact("value", repr(item)[:60]))


def refuse_repetition(claims: Iterable[Claim]) -> None:
    """Refuse a plugin that claims one name twice, because it is unknown which claim is meant."""
    seen: dict[tuple[str, str], Claim] = {}
    for claim in claims:
        first = seen.setdefault((claim.kind, claim.name), claim)
        if first is not claim:
            raise PluginError(
                f"{claim.name} ({claim.kind}) is defined twice by the same plugin",
                Fact("first", first.provenance),
                Fact("second", claim.provenance),
            )


def refuse_reserved(claims: Iterable[Claim], reserved: Mapping[tuple[str, str], Claim]) -> None:
    """A plugin may not take rlx's own names by being installed; a configuration may give them to it.

    Between two plugins rlx cannot decide which is right, and the name is refused. Here the later one is wrong, and
    must not be able to take an op away from every program.
    """
    for claim in claims:
        if (claim.kind, claim.name) in reserved:
            first = reserved[claim.kind, claim.name].provenance
            raise PluginError(
                f"defines {claim.name}, which {first.distribution} {first.version} defines already",
                Fact("first", first),
                Fact("second", claim.provenance),
                hint=f'to replace it: [plugins.override] "{claim.name}" = "{claim.entry.name}"',
            )
