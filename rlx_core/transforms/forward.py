"""Parts of a configuration that transformations read: passes before reverse differentiation, and plugins with rules.

Recognition must come first: no pattern matches the derivative of attention written in primitives, while the derivative of the
recognised op is its own rule. This layer has no pass of its own. Code that traces for a configuration sets the function to run
(`preparing`), and `value_and_grad` and `vjp` apply it (`prepared`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Final

from rlx_core.ir.graph import Graph
from rlx_core.system.context import assigned

if TYPE_CHECKING:
    from rlx_core.plugins import PluginHost

Prepare = Callable[[Graph], Graph]
"""A function from a graph to an equivalent one with the same inputs, params and types of outputs."""

RULE_HOST: Final[ContextVar[Callable[[], PluginHost] | None]] = ContextVar("plugins with rules", default=None)
"""Returns the plugins whose rules `rlx_core.transforms.contributed` reads; the default host if it is not set."""

_prepare: ContextVar[Prepare | None] = ContextVar("prepare for differentiation", default=None)


def preparing(prepare: Prepare) -> assigned[Prepare]:
    """Apply `prepare` to every function that is differentiated in reverse inside the block."""
    return assigned(_prepare, prepare)


def prepared(graph: Graph) -> Graph:
    """Return the graph to differentiate in place of `graph`."""
    prepare = _prepare.get()
    if prepare is None:
        return graph
    result = Context().run(prepare, graph)  # outside of any trace: nodes built by a pass must not go to this one
    assert result.input_types == graph.input_types, "what prepares a function keeps its inputs"
    assert result.output_types == graph.output_types, "what prepares a function keeps its types"
    return result


def using(host: Callable[[], PluginHost]) -> assigned[object]:
    """Take contributed rules from the plugins of `host`, which is called if any are needed, inside the block."""
    return assigned(RULE_HOST, host)
