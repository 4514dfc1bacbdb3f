"""`ContributionFault`: one unusable contribution of a usable plugin, so that the plugin's other contributions remain."""

from __future__ import annotations

import warnings

from attrs import evolve, field

from rlx_core.errors import Fact, PluginError, RlxError
from rlx_core.plugins.collect import Claim
from rlx_core.plugins.states import Failure, Provenance, singular
from rlx_core.system.records import frozen


@frozen
class ContributionFault:
    """One contribution that is left out.

    Args:
        owner: The plugin that contributed it.
        reason: The fault, in one line.
        where: The line that raised, if one did.
        mend: The command or the change that fixes it.
        is_wrong: Whether something is lost; otherwise it is only worth knowing.
        error: The exception of its code.
    """

    kind: str
    name: str
    owner: Provenance
    reason: str
    where: str = ""
    mend: str | None = None
    is_wrong: bool = True
    error: BaseException | None = field(default=None, eq=False, repr=False)

    @property
    def what(self) -> str:
        """`kernel cpu:acme.kernels:table`"""
        return f"{singular(self.kind)} {self.name}"

    def __str__(self) -> str:
        return f"{self.what} of {self.owner.plugin} ({self.owner.distribution} {self.owner.version}): {self.reason}"


def fault_of(claim: Claim, error: BaseException) -> ContributionFault:
    """The fault of a contribution whose import, or whose check, raised `error`."""
    cause = error.__cause__ if isinstance(error, PluginError) and error.__cause__ is not None else error
    failure = Failure.of(cause)
    if cause is error or not failure.where:  # no line of the plugin's own raised: the record itself is at fault
        failure = evolve(failure, where=claim.provenance.place)
    message = failure.summary.removeprefix(f"{claim.name}: ")
    reason = f"it does not load ({named_cause(cause)})" if cause is not error else message
    from rlx_core.plugins.explain import mending  # here, because it is for an error

    mend = mending(claim.entry, failure)
    return ContributionFault(claim.kind, claim.name, claim.provenance, reason, failure.where, mend, error=cause)


def named_cause(error: BaseException) -> str:
    """Return an exception in one line: its class, and the first line of its message."""
    message = error.message if isinstance(error, RlxError) else str(error)
    return f"{type(error).__name__}: {message.strip().splitlines()[0]}" if message.strip() else type(error).__name__


def as_fact(fault: ContributionFault) -> Fact:
    """Return a fault as a line of an error about a name that is missing because of it."""
    return Fact("left out", str(fault), fault.where or None)


def warn_of(fault: ContributionFault) -> None:
    """Warn that a contribution is left out of the current operation."""
    mend = f" To mend it: {fault.mend}." if fault.mend else ""
    warnings.warn(f"{fault}; it is left out.{mend} `rlx doctor` says more.", RuntimeWarning, stacklevel=2)
