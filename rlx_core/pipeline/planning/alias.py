"""Values without separate storage: views of an operand, and operands that a concatenation or a padding owns.

Both are facts that ops state about themselves (`Op.view`, `Op.parts`); this module decides where they may be used. A view
that is dense is always taken. A strided one is taken when everyone who would read it can: a kernel that accepts strides, or
another view; a strided part when its writer can as well. Every alias that leaves this module names its final root, with
offsets summed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from attrs import field

from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.lir import Alias, covers_root, is_made_of_parts, placement, root_of
from rlx_core.ir.strides import Strides, dense_strides, extent, is_dense
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.kernels import Kernel
from rlx_core.system.records import frozen

FindKernel = Callable[[Node], Kernel | None]

_LOOKAHEAD: Final = 8
"""Maximum length of a chain of strided views that is followed to its readers. Beyond it the answer is "copy", always valid, and
the walk stays linear in the size of the graph."""


@frozen
class Views:
    """The results that are views, and the check whether a further one may be.

    Attributes:
        graph: The program, with static types.
        scheduled: The nodes that run; the others read nothing.
        find_kernel: The kernel that would run a node.
        are_strided: Whether the target has strided views at all.
    """

    graph: Graph
    scheduled: frozenset[Node]
    find_kernel: FindKernel
    are_strided: bool

    def of(self, node: Node, source: Alias) -> tuple[Alias, ...] | None:
        """Return the results of `node` as views of its first operand, which lies at `source`; `None` if they are not views."""
        if node.op.view is None or node.operands[0] is None:
            return None
        viewed = node.op.view(node.operands[0].type, source.strides, source.byte_offset)
        if viewed is None:
            return None
        pairs = (viewed,) if len(node.types) == 1 else viewed
        # A value without elements lies anywhere, so it lies at the start: its offset may be past the end of an empty root.
        offsets = (offset if v.type.static_nbytes else 0 for v, (offset, _) in zip(node.results, pairs, strict=True))
        return tuple(Alias(source.root, o, tuple(strides)) for o, (_, strides) in zip(offsets, pairs, strict=True))

    def fit(self, value: Value, place: Alias, lookahead: int = _LOOKAHEAD, *, excluded: Node | None = None) -> bool:
        """Return whether each reader of `value` but `excluded` can read it at `place`. Callers of the program read densely."""
        if is_dense(value.type, place.strides):
            return True
        if not self.are_strided or lookahead == 0 or value in self.graph.output_set:
            return False
        readers = dict.fromkeys(u for u in self.graph.uses[value] if u in self.scheduled and u is not excluded)
        return all(self._reads(user, value, place, lookahead) for user in readers)

    def _reads(self, user: Node, value: Value, place: Alias, lookahead: int) -> bool:
        kernel = self.find_kernel(user)
        if kernel is not None and kernel.accepts_strides:
            return True
        if user.operands[0] is not value:
            return False
        views = self.of(user, place)
        return views is not None and all(
            self.fit(v, a, lookahead - 1) for v, a in zip(user.results, views, strict=True)
        )


def place_views(
    views: Views,
    nodes: Sequence[Node],
    placed: Mapping[Value, Alias] = MappingProxyType({}),
    before: Mapping[Value, Alias] | None = None,
) -> dict[Value, Alias]:
    """The results of `nodes` that are views, each with its root.

    Args:
        views: The check for views.
        nodes: The schedule.
        placed: Other values that lie in another's bytes.
        before: The result for the same nodes with `placed` empty: only views of values in `placed` are computed again.
    """
    aliases = dict(placed)
    for value, alias in placed.items():
        expect_inside(value, alias)
    for node in nodes:
        if node.op.view is None or node.operands[0] is None:
            continue
        if before is not None and root_of(node.operands[0], before) not in placed:
            aliases.update((v, before[v]) for v in node.results if v in before)
            continue
        places = views.of(node, placement(node.operands[0], aliases))
        if places is not None and all(views.fit(v, a) for v, a in zip(node.results, places, strict=True)):
            for value, alias in zip(node.results, places, strict=True):
                expect_inside(value, alias)
                aliases[value] = alias
    return aliases


def expect_inside(value: Value, alias: Alias) -> None:
    """Require that all elements of a value lie in the bytes of its root."""
    first, end = extent(value.type, alias.strides)
    inside = alias.byte_offset + first >= 0 and alias.byte_offset + end <= alias.root.type.static_nbytes
    assert inside, f"view inside its root: {value!r} at {alias}"


LEAST_RUN: Final = 64
"""Minimum contiguous bytes of a strided part: writing less than a cache line at a time would cost as much as the copy."""


@frozen
class Parts:
    """Ops that own their operands' bytes, because these are computed in place; only the remainder is then written by the op.

    Attributes:
        views: The check for views.
        aliases: The existing views, by which operands are traced to their roots.
        alignment: Bytes; a part that would lie elsewhere is refused, because kernels may write results with aligned stores.
    """

    views: Views
    aliases: Mapping[Value, Alias]
    alignment: int
    _viewing: Mapping[Value, Sequence[Node]] = field(init=False)

    @_viewing.default
    def _nodes_that_view(self) -> Mapping[Value, Sequence[Node]]:
        result: dict[Value, list[Node]] = {}
        for node in self.views.graph.nodes:
            alias = self.aliases.get(node.results[0])
            if alias is not None:
                result.setdefault(alias.root, []).append(node)
        return result

    def of(self, nodes: Iterable[Node], pinned: frozenset[Value]) -> dict[Node, dict[Value, Alias]]:
        """Node → the roots of its operands as parts of its result, for nodes whose operands can all be computed in place.

        Args:
            nodes: The schedule.
            pinned: Roots that must stay where they are.
        """
        owned: dict[Node, dict[Value, Alias]] = {}
        moved: set[Value] = set(pinned)
        for node in nodes:
            if node.op.parts is None or any(v in self.aliases for v in node.results):
                continue
            places = node.op.parts(*node.operand_types)
            if places is None or not (is_made_of_parts(node) or self._is_completed(node)):
                continue
            parts: dict[Value, Alias] = {}
            for value, place in zip(node.operands, places, strict=False):
                if value is None or place is None or not value.type.static_nbytes:
                    continue
                offset, strides = place
                root = root_of(value, self.aliases)
                is_movable = (
                    not root.node.is_leaf
                    and root not in moved
                    and root not in parts
                    and offset % self.alignment == 0
                    and covers_root(value, self.aliases)
                )
                is_dense_part = is_dense(value.type, strides)
                part = Alias(node.result, offset, dense_strides(root.type) if is_dense_part else tuple(strides))
                if not (is_movable and (is_dense_part or (value is root and self._fits(node, part, root, owned)))):
                    break
                parts[root] = part
            else:
                if parts:
                    owned[node] = parts
                    moved.update(parts)
        return owned

    def _is_completed(self, node: Node) -> bool:
        kernel = self.views.find_kernel(node)
        return kernel is not None and kernel.completes_parts

    def _fits(self, node: Node, part: Alias, root: Value, owned: Mapping[Node, object]) -> bool:
        """Return whether `root` can lie with gaps: its writer and all readers except `node` support it."""
        if root.node in owned or _run(root.type, part.strides) < LEAST_RUN:
            return False
        writer = self.views.find_kernel(root.node)
        if writer is None or not writer.writes_strides or not self.views.fit(root, part, excluded=node):
            return False
        # A view that would have to copy costs the bytes that are saved here.
        viewing = self._viewing.get(root, [])
        places = place_views(self.views, viewing, {root: part})
        return all(n.results[0] in places for n in viewing)


def _run(type: TensorType, strides: Strides) -> int:
    """Bytes that lie together, where axes are laid out in order."""
    nbytes = type.dtype.itemsize
    for size, stride in zip(reversed(type.static_shape), reversed(strides), strict=True):
        if stride != nbytes and size != 1:
            break
        nbytes *= size
    return nbytes


def with_parts(aliases: Mapping[Value, Alias], parts: Mapping[Value, Alias]) -> dict[Value, Alias]:
    """Return all aliases; a root that became a part of a dense value is replaced by that value, offsets summed."""
    final = dict(aliases) | dict(parts)

    def resolve(alias: Alias) -> Alias:
        while alias.root in parts:
            outer = parts[alias.root]
            alias = Alias(outer.root, outer.byte_offset + alias.byte_offset, alias.strides)
        return alias

    return {value: resolve(alias) for value, alias in final.items()}
