"""What happens to a function between tracing and reverse differentiation.

Recognition has to come first: the derivative of attention written in primitives is a program that no pattern finds again, while
the derivative of the recognised op is its own rule. This layer knows no pass. Whoever traces for a configuration says what is to
run (`preparing`), and `value_and_grad` and `vjp` ask for it (`prepared`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar

from rlx_core.ir.graph import Graph

__all__ = ["Prepare", "prepared", "preparing"]

Prepare = Callable[[Graph], Graph]
"""From a graph to one that means the same, with the same inputs, params and types of outputs."""

_prepare: ContextVar[Prepare | None] = ContextVar("prepare for differentiation", default=None)


@contextmanager
def preparing(prepare: Prepare) -> Iterator[None]:
    """Let `prepare` run on every function that is differentiated in reverse inside the block."""
    token = _prepare.set(prepare)
    try:
        yield
    finally:
        _prepare.reset(token)


def prepared(graph: Graph) -> Graph:
    """The graph to differentiate in place of `graph`."""
    prepare = _prepare.get()
    if prepare is None:
        return graph
    made = Context().run(prepare, graph)  # as outside of any trace: what a pass builds must not land in this one
    assert made.input_types == graph.input_types, "what prepares a function keeps its inputs"
    assert made.output_types == graph.output_types, "what prepares a function keeps its types"
    return made
