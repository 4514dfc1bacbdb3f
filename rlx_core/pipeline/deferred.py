"""Passes that are imported for the first program with one of their ops (`PassSpec.ops`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

from attrs import field

from rlx_core.ir.graph import Graph
from rlx_core.ir.op import Op
from rlx_core.passes.engine.base import Context, Pass, Result
from rlx_core.system.records import frozen


@frozen(eq=False, slots=False, repr=False)
class DeferredPass(Pass):
    """A pass with default options that leaves programs without its ops as they are.

    Attributes:
        ops: These ops, by name.
        load: Imports the pass.
    """

    name: str = field()  # type: ignore[misc]  # of the deferred pass
    ops: frozenset[str] = field()
    load: Callable[[], Pass] = field()

    @cached_property
    def imported(self) -> Pass:
        return self.load()

    @property
    def is_imported(self) -> bool:
        return "imported" in vars(self)

    def is_needed(self, graph: Graph) -> bool:
        """Return whether a program has one of the ops, in itself or in a nested graph."""
        return not self.ops.isdisjoint(graph.op_names)

    def options(self) -> dict[str, Any]:
        return self.imported.options()

    def __repr__(self) -> str:
        return repr(self.imported)

    def run(self, graph: Graph, context: Context) -> Result:
        return self.imported.run(graph, context) if self.is_needed(graph) else Result.unchanged(graph)


def made_ops(passes: Iterable[Any], graph: Graph) -> Iterator[tuple[type[Op], ...]]:
    """Yield the ops of each fusion pass that a program needs: the pass asks the target whether it has kernels of any of them."""
    for each in passes:
        needed = each.imported if isinstance(each, DeferredPass) and each.is_needed(graph) else each
        yield getattr(needed, "makes", ())
