"""The state of a plugin, the reason for it, and the plugin's contributions; values that any report can print."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from attrs import field

from rlx_core.errors import PluginError
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.plugins.faults import ContributionFault

T = TypeVar("T")


class State(StrEnum):
    """The verdict on a plugin; a plugin that has not been used yet has none."""

    ACTIVE = "active"
    BLOCKED = "blocked"  # switched off by the user
    INCOMPATIBLE = "incompatible"  # needs another version of rlx-core; never imported
    FAILED = "failed"  # raised, exited, or broke the rules for plugins
    UNAVAILABLE = "unavailable"  # works, but its hardware, driver or library is missing here
    SHADOWED = "shadowed"  # the configuration gave something of its to another plugin


MACHINERY: Final = (
    Path(__file__).parent,
    Path(__file__).parent.parent / "contributions",
    Path(importlib.__file__).parent,
)


@frozen
class Failure:
    """The exception of a plugin's own code, kept so that every use of the plugin reports the true cause."""

    error: BaseException = field(eq=False)
    where: str  # the innermost line, which is the plugin's own or one that it called
    summary: str  # one line: kind and message
    trace: tuple[str, ...] = ()  # innermost last

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Record an exception, and clear the local variables of its frames."""
        frames = traceback.extract_tb(error.__traceback__)
        # The first frames are rlx's and the import system's, and irrelevant to the plugin.
        relevant = [frame for frame in frames if not is_machinery(frame.filename)]
        traceback.clear_frames(error.__traceback__)
        lines = tuple(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in relevant)
        message = error.message if isinstance(error, PluginError) else str(error)
        summary = message if isinstance(error, PluginError) else f"{type(error).__name__}: {message}".rstrip(": ")
        if isinstance(error, SyntaxError):
            lines += (f"{error.filename}:{error.lineno}",)  # the line that does not parse has no frame
        return cls(error, lines[-1] if lines else "", summary, lines[-4:])


@frozen
class Outcome(Generic[T]):
    """The outcome of running a plugin's code: a value, or the failure."""

    value: T | None = None
    failure: Failure | None = None


def attempt(action: Callable[[], T]) -> Outcome[T]:
    """Run a plugin's code and catch all of its exceptions, even `SystemExit`; only Ctrl-C passes."""
    try:
        return Outcome(action())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - isolation is the purpose: one plugin never stops another
        return Outcome(failure=Failure.of(error))


def is_machinery(filename: str) -> bool:
    """Return whether a frame belongs to the import system, to generated code, or to the plugin layer itself."""
    return filename.startswith("<") or Path(filename).parent in MACHINERY


@frozen
class Provenance:
    """The origin of a registered object."""

    plugin: str
    distribution: str
    version: str
    file: str
    line: int | None = None

    @property
    def place(self) -> str:
        """`file:line`, as far as they are known."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}, {self.place}"


@frozen
class Verdict:
    """The decision about a plugin, its reason, and what would change it."""

    state: State
    reason: str = ""
    mend: str | None = None
    failure: Failure | None = None


@frozen
class PluginStatus:
    """One row of the listing.

    Args:
        state: The verdict, or `None` while the plugin has not been used.
        reason: Why, in one line; empty for a plugin that is active without remarks.
        mend: The command or the change that would make it usable, where one is known.
        provides: Names by kind; known only once the plugin has been activated.
        contested: Names that another plugin claims as well.
        overrides: Names it has taken from others, each with the plugin that lost it.
        overridden: Names it has lost, each with the plugin that has it now.
        faults: Contributions that cannot be used, as far as that is known without importing them.
    """

    name: str
    state: State | None
    reason: str
    distribution: str
    version: str
    file: str
    mend: str | None = None
    provides: Mapping[str, tuple[str, ...]] = field(factory=dict)
    contested: tuple[str, ...] = ()
    overrides: Mapping[str, str] = field(factory=dict)
    overridden: Mapping[str, str] = field(factory=dict)
    failure: Failure | None = None
    faults: tuple[ContributionFault, ...] = ()

    @property
    def label(self) -> str:
        """The state as a listing prints it."""
        return "idle" if self.state is None else self.state.value

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of names that it provides, by kind."""
        return {kind: len(names) for kind, names in self.provides.items()}


SINGULAR: Final = {"passes": "pass", "backends": "target"}


def singular(kind: str) -> str:
    """Return the singular of a kind, in the user's terms."""
    return SINGULAR.get(kind, kind.removesuffix("s"))
