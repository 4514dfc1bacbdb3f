"""Building a replacement outside of the graph before it is inserted.

A replacement is drafted in a separate builder, which captures the values it reads. So its types and guards are known
before the graph changes, a rejected draft leaves no trace, and the node that gives the result inherits the name of
the node it replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx_core.ir.dims import SizeGuard
from rlx_core.ir.graph import Builder, Constant, Node, Value, ambient_builder, as_results, building
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen


@frozen(eq=False)
class Draft:
    """Values built by `draft`; some are new, and some are captured from outside."""

    results: tuple[Value, ...]
    builder: Builder

    @property
    def types(self) -> tuple[TensorType, ...]:
        return tuple(v.type for v in self.results)

    @property
    def guards(self) -> tuple[SizeGuard, ...]:
        """The conditions on sizes for the draft."""
        return tuple(self.builder.guards)

    def place(self, node: Node) -> tuple[Value, ...]:
        """Put the draft into the graph being built, in place of `node`; returns the new results."""
        return self.place_named([node.name] if len(self.results) == 1 else [])

    def place_named(self, names: Sequence[str | None]) -> tuple[Value, ...]:
        """Put the draft into the graph being built, with a name for the node of each result that is the first of its node."""
        target = ambient_builder()
        assert target is not None, "drafts are placed inside a rebuild"
        target.add_guards(self.guards)
        values = {inner: outer for outer, inner in self.builder.captures.items()}
        needed = self.needed()
        named = {v.node: n for v, n in zip(self.results, names, strict=False) if n is not None and v.index == 0}
        for each in self.builder.nodes:
            if each not in needed or each.results[0] in values:
                continue
            name = each.name or named.get(each)
            if isinstance(each.op, Constant) and name is None:
                values[each.result] = target.constant(each.op.value)
                continue
            operands = [None if v is None else values[v] for v in each.operands]
            copies = target.emit(each.op, operands, name=name, origin=each.origin, types=each.types)
            values.update(zip(each.results, copies, strict=True))
        return tuple(values.get(v, v) for v in self.results)

    def needed(self) -> set[Node]:
        """The nodes of the draft that its results and effects depend on."""
        result = {v.node for v in self.results}
        for each in reversed(self.builder.nodes):
            if each in result or not each.op.is_pure:
                result.add(each)
                result.update(v.node for v in each.present())
        return result


def draft(make: Callable[[], Any], name: str = "draft") -> Draft | None:
    """Return the draft that `make()` builds in a separate builder; `None` if it returns `None`."""
    builder = Builder(name, capturing=True)
    with building(builder):
        results = make()
        return None if results is None else Draft(as_results(results), builder)
