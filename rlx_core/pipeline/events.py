"""Events of a compilation for plugins, `logging` and the progress line at the terminal.

Listeners get facts and change nothing; one that raises is named in a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import Factory, field

from rlx_core.pipeline.contributed import expectation
from rlx_core.plugins import Registry
from rlx_core.plugins.states import attempt
from rlx_core.system.locks import fork_safepoint
from rlx_core.system.logs import log_event
from rlx_core.system.progress import Phase
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.passes.engine.runner import PassEvent


@frozen
class CompileEvent:
    """One thing that happened.

    Attributes:
        event: compile-start, cache-hit, cache-miss, pass-start, pass-end or compile-end.
        program: The name of the graph.
        target: The target of the compilation.
        facts: Further data, by name: pass, nodes, seconds, source, key.
    """

    event: str
    program: str
    target: str
    facts: Mapping[str, Any] = Factory(dict)


@frozen(eq=False)
class Events:
    """The listeners of one compilation, and its current phase."""

    registry: Registry
    program: str
    target: str
    phase: Phase = field(factory=Phase)

    def tell(self, event: str, **facts: Any) -> None:
        """Log `event`, and call everyone who listens to it, in the registry's order."""
        log_event(event, {"program": self.program, "target": self.target, **facts})
        for spec in self.registry.listeners(event):
            listener = self.registry.usable("events", spec.name, expectation("events", spec, self.registry))
            if listener is None:
                continue
            happened = CompileEvent(event, self.program, self.target, facts)
            with fork_safepoint:  # a listener may wait for its locks
                outcome = attempt(partial(listener, happened))  # a compile does not depend on it, not even on its exit
            if outcome.failure is not None:
                owner = self.registry.owner("events", spec.name)
                raised = f"raised {outcome.failure.summary} ({outcome.failure.where})"
                warnings.warn(f"{owner}: its listener to {event} {raised}", RuntimeWarning, stacklevel=3)

    def on_pass(self, happened: PassEvent) -> None:
        """Forward the events of the pass runner."""
        if happened.event == "pass-start":
            self.phase.now = happened.name
        details = {"name": happened.name, "nodes": happened.nodes, "seconds": happened.seconds}
        self.tell(happened.event, **details, counts=happened.counts)
