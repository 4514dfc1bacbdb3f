"""Errors of contributions at use: the owner of an exception, as a typed error and as an entry of the journal."""

from __future__ import annotations

import signal
import traceback
from pathlib import Path
from typing import Final

from rlx_core.errors import Fact, PluginError, RlxError
from rlx_core.plugins.entry import PluginEntry, PluginOrigin
from rlx_core.plugins.faults import ContributionFault, named_cause, warn_of
from rlx_core.plugins.host import HOSTS
from rlx_core.plugins.states import Failure, Provenance

CORE_FOLDER: Final = Path(__file__).parents[1]


def owner_of(kind: str, name: str, plugin: str | None) -> tuple[Provenance, PluginEntry] | None:
    """Return the plugin that contributed something, by the claims of the hosts of this process; `None` if no plugin did."""
    word = plugin or name.partition(".")[0]
    hosts = [host for _, host in sorted(HOSTS.items(), reverse=True)]
    for host in hosts:
        claim = host.claim_of(kind, name)
        if claim is not None and plugin in (None, claim.entry.name):
            return claim.provenance, claim.entry
    for host in hosts:
        for entry in host.entries:
            if entry.name == word:
                return Provenance(entry.name, entry.distribution, entry.version, entry.file), entry
    return None


def fault_at_use(kind: str, name: str, step: str, plugin: str | None, error: BaseException) -> ContributionFault | None:
    """The fault of a contribution that raised, recorded in the journal.

    `None` for code of no plugin, and for rlx's own ops and passes: an exception there is a defect of rlx, of which the
    traceback is the best description.
    """
    ownership = owner_of(kind, name, plugin)
    if ownership is None or ownership[1].origin is PluginOrigin.BUILTIN or is_from_signal_handler(error):
        return None
    from rlx_core.plugins.explain import mending  # here, as the next, because it is for an error
    from rlx_core.plugins.journal import UseFailure, remember

    owner, entry = ownership
    where = line_of(error)
    failure = Failure(error, where, named_cause(error))
    mend = f'{mending(entry, failure)} (or `plugins.block = ["{entry.name}"]` in the configuration)'
    fault = ContributionFault(kind, name, owner, f"{step} raised {named_cause(error)}", where, mend, error=error)
    record = UseFailure(owner.plugin, owner.distribution, owner.version, fault.what, fault.reason, where, mend)
    remember(record, is_installed=entry.origin is PluginOrigin.INSTALLED)
    return fault


def typed_error(kind: str, name: str, step: str, plugin: str | None, error: BaseException) -> BaseException:
    """Return the error to raise for an exception in contributed code: `error` itself if it is an rlx error, or from no plugin."""
    if isinstance(error, RlxError) or is_from_signal_handler(error):
        return error
    fault = fault_at_use(kind, name, step, plugin, error)
    return error if fault is None else use_error(fault)


def use_error(fault: ContributionFault) -> PluginError:
    """The error for a contribution that raised: the step, the plugin, the record and the remedy."""
    result = PluginError(
        f"{fault.name}: {fault.reason}",
        Fact("plugin", f"{fault.owner.plugin} ({fault.owner.distribution} {fault.owner.version})", fault.owner.place),
        Fact("record", fault.what, fault.where or None),
        hint=fault.mend,
    )
    result.fault = fault
    return result


def leave_row_out(
    kind: str, name: str, step: str, plugin: str | None, error: BaseException
) -> ContributionFault | None:
    """The fault of a contribution that is passed over for the next one, after a warning; `None` as for `fault_at_use`."""
    attached = error.fault if isinstance(error, PluginError) else None
    fault = attached if isinstance(attached, ContributionFault) else fault_at_use(kind, name, step, plugin, error)
    if fault is not None:
        warn_of(fault)
    return fault


def is_from_signal_handler(error: BaseException) -> bool:
    """Return whether an exception passed through a signal handler of the program, such as a time limit by `SIGALRM`."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    functions = [getattr(each, "__func__", each) for each in handlers if callable(each)]
    codes = {getattr(each, "__code__", None) for each in functions}
    codes |= {getattr(vars(type(each)).get("__call__"), "__code__", None) for each in functions}
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(frame.f_code in codes for frame in frames)


def line_of(error: BaseException) -> str:
    """Return the innermost line outside of rlx-core that an exception passed through, else the innermost line."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [each for each in frames if CORE_FOLDER not in Path(each.filename).parents] or list(frames)
    return f"{outside[-1].filename}:{outside[-1].lineno} in {outside[-1].name}" if outside else ""
