"""Passes that are imported for the first program with one of their ops (`PassSpec.ops`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

from attrs import field

from rlx_core.ir.graph import Graph, nested_graphs
from rlx_core.ir.op import Op, names_of
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

    def options(self) -> dict[str, Any]:
        return self.imported.options()

    def __repr__(self) -> str:
        return repr(self.imported)

    def run(self, graph: Graph, context: Context) -> Result:
        return self.imported.run(graph, context) if has_any(graph, self.ops) else Result.unchanged(graph)


def has_any(graph: Graph, names: frozenset[str]) -> bool:
    """Return whether a program or a graph inside it has an op of one of these names, or of a class that is derived from one."""
    ops = {*op_types(graph)}
    return any(not names.isdisjoint(names_of(op)) for op in ops)  # type: ignore[arg-type]  # a class is hashable


def made_ops(passes: Iterable[Any], graph: Graph) -> Iterator[tuple[type[Op], ...]]:
    """Yield the ops of each fusion pass that a program needs: the pass asks the target whether it has kernels of any of them."""
    for each in passes:
        needed = each.imported if isinstance(each, DeferredPass) and has_any(graph, each.ops) else each
        yield getattr(needed, "makes", ())


def op_types(graph: Graph) -> Iterator[type[Op]]:
    """Yield the classes of the ops of a graph and of the graphs inside it."""
    for node in graph.nodes:
        yield type(node.op)
        for nested in nested_graphs(node.op).values():
            yield from op_types(nested)
