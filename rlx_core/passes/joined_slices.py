"""Slices that are joined again in their order, with the same element-wise ops on each: the ops run once, on the whole.

`concat(f(x[:2], y[:2], s), f(x[2:], y[2:], s))` is `f(x, y, s)`, where f works element by element and `s` is repeated along the
axis. Every element is computed from the same numbers as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import field

from rlx_core.ir.graph import Node, Value
from rlx_core.ir.types import normalize_axis
from rlx_core.ops.movement import Concat, Narrow
from rlx_core.passes.engine.fusion import declined_if_kept
from rlx_core.passes.engine.rules import Declined, Match
from rlx_core.passes.fuse.mark_elementwise_regions import is_step
from rlx_core.system.records import frozen

DEEPEST: Final = 64
"""Maximum length of a chain of ops that is examined; a longer chain is unchanged."""


def whole_of_slices(match: Match) -> Value | Declined | None:
    """Return the value that a concatenation of slices equals; declined where other nodes need values computed from a slice."""
    op, parts = match.root.op, tuple(match.root.present())
    assert isinstance(op, Concat), "the rule begins with concatenations"
    if len(parts) < 2:
        return None
    joining = Joining(match)
    joined = joining.join(parts, normalize_axis(op.axis, match.root.type.rank))
    if joined is None or joined.type != match.root.type:
        return None
    return declined_if_kept(match.graph, joining.chains, {*joining.chains, match.root}) or joined


@frozen(eq=False)
class Joining:
    """One attempt to do without a concatenation.

    Attributes:
        chains: The nodes between the concatenation and the slices.
        joined: The concatenation of values, each group once; `None` where they are not adjacent slices.
    """

    match: Match
    chains: set[Node] = field(factory=set)
    joined: dict[tuple[Value, ...], Value | None] = field(factory=dict)

    def join(self, parts: Sequence[Value], axis: int, depth: int = 0) -> Value | None:
        """`parts` end to end, without a concatenation."""
        group = tuple(parts)
        if group not in self.joined:
            is_chain = depth < DEEPEST and len({v.node.op for v in group}) == 1 and all(is_step(v.node) for v in group)
            self.joined[group] = self.of_chains(group, axis, depth) if is_chain else self.of_slices(group, axis)
        return self.joined[group]

    def of_chains(self, parts: Sequence[Value], axis: int, depth: int) -> Value | None:
        """Apply one element-wise op to the joined operands of its results; operands that broadcast along the axis are not cut."""
        self.chains.update(v.node for v in parts)
        operands: list[Value] = []
        for several in zip(*(v.node.present() for v in parts), strict=True):
            first, place = several[0], axis - parts[0].ndim + several[0].ndim
            if all(v is first for v in several) and (place < 0 or first.shape[place] == 1):
                operands.append(self.match.new(first))
                continue
            is_cut = all(v.ndim == first.ndim for v in several) and place >= 0
            if not is_cut or any(v.shape[place] != p.shape[axis] for v, p in zip(several, parts, strict=True)):
                return None
            joined = self.join(several, place, depth + 1)
            if joined is None:
                return None
            operands.append(joined)
        result = parts[0].node.op(*operands)
        assert isinstance(result, Value), "an element-wise op has one result"
        return result

    def of_slices(self, parts: Sequence[Value], axis: int) -> Value | None:
        """Slices of one value that follow one another: the value, or the slice that they are together."""
        cuts = [v.node.op for v in parts if isinstance(v.node.op, Narrow)]
        source = parts[0].node.operands[0] if len(cuts) == len(parts) else None
        if source is None or any(v.node.operands[0] is not source for v in parts):
            return None
        start = end = cuts[0].start
        for cut in cuts:
            if normalize_axis(cut.axis, source.ndim) != axis or cut.step != 1 or cut.start != end:
                return None
            end = end + cut.length
        full = self.match.new(source)
        return full if start == 0 and end == source.shape[axis] else Narrow(axis, start, end - start)(full)
