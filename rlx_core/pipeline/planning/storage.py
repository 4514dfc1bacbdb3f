"""Sharing of storage between values: results that take over an operand's bytes, outputs, and donated buffers.

A *storage* is the bytes of one root, and then of each result that takes them over when their last reader has come. It
ends up in the arena, in a buffer that the caller gets (an `own` output), or in a donated leaf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import Factory, field

from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.lir import Alias, OutputDelivery, covers_root, placement, root_of
from rlx_core.ir.strides import dense_strides
from rlx_core.pipeline.kernels import Kernel
from rlx_core.system.records import define


@define(eq=False)
class Outlets:
    """The buffers of outputs, as far as they are known before results share bytes.

    Attributes:
        destinations: Root → the donated leaf it should end up in, or `None`, for outputs that may have a separate buffer.
        lasting: Roots that are read when the run ends.
        donors: The donated leaves.
        next_values: Output index → the donated leaf whose next value it is.
    """

    destinations: dict[Value, Value | None]
    lasting: frozenset[Value]
    donors: frozenset[Value]
    next_values: Mapping[int, Value]


def outlets(
    graph: Graph,
    aliases: Mapping[Value, Alias],
    donations: Mapping[Value, int | None],
    *,
    are_own: bool = True,
) -> Outlets:
    """Give each output a separate buffer where it is the first to have its root and covers all of it.

    Args:
        graph: The program.
        aliases: Its views.
        donations: Donated leaf → the output that is its next value, if one is.
        are_own: Whether outputs leave the arena at all; a nested program's are copied by its enclosing step.
    """
    next_values = {index: leaf for leaf, index in donations.items() if index is not None}
    destinations: dict[Value, Value | None] = {}
    for index, value in enumerate(graph.outputs):
        root = root_of(value, aliases)
        if are_own and not root.node.is_leaf and root not in destinations and covers_root(value, aliases):
            destinations[root] = next_values.get(index)
    lasting = frozenset(root_of(v, aliases) for v in graph.outputs)
    return Outlets(destinations, lasting, frozenset(donations), next_values)


@define(eq=False)
class Storage:
    """One root's bytes and who has them in turn. `home` is the leaf or output that the bytes belong to, if not the arena."""

    members: list[Value]
    home: Value | None = None
    birth: int = -1


@define(eq=False)
class Reuse:
    """The walk over the schedule that lets results take over the bytes of operands whose last use is there.

    Attributes:
        graph: The program.
        steps: Its nodes in order, with the kernels that run them; views and owned concatenations are not among them.
        aliases: Views and parts, each with its final root.
        outlets: The buffers of outputs.
    """

    graph: Graph
    steps: Sequence[tuple[Node, Kernel]]
    aliases: Mapping[Value, Alias]
    outlets: Outlets
    in_place: dict[Node, dict[int, int]] = field(init=False, factory=dict)
    last_read: dict[Value, int] = field(init=False)
    storages: dict[Value, Storage] = field(
        init=False, default=Factory(lambda self: {v: Storage([v], v) for v in self.outlets.donors}, takes_self=True)
    )

    def __attrs_post_init__(self) -> None:
        self.last_read = self._last_reads()
        births = self._births()
        for root, birth in births.items():
            home = root if root in self.outlets.destinations else None
            self.storages[root] = Storage([root], home, birth)

    def root_of(self, value: Value) -> Value:
        return root_of(value, self.aliases)

    def run(self, *, in_place: bool = True) -> Reuse:
        """Merge storages; afterwards `in_place`, `homes` and `deliveries` tell the outcome."""
        if in_place:
            for index, (node, kernel) in enumerate(self.steps):
                self._take_over(index, node, kernel)
            self._move_into_donors()
        return self

    def homes(self) -> dict[Value, Alias]:
        """Root → the leaf or output whose bytes it lives in, for roots that are not in the arena and not that value."""
        return {
            member: Alias(storage.home, 0, dense_strides(member.type))
            for storage in dict.fromkeys(self.storages.values())
            if storage.home is not None
            for member in storage.members
            if member is not storage.home
        }

    def deliveries(self) -> tuple[OutputDelivery, ...]:
        """The delivery of each output to the caller."""
        deliveries: list[OutputDelivery] = []
        handed: set[Value] = set()
        for index, value in enumerate(self.graph.outputs):
            root = self.root_of(value)
            storage = self.storages.get(root)
            donor = self.outlets.next_values.get(index)
            if donor is not None:
                deliveries.append(OutputDelivery("donor", donor))
            elif root not in self.outlets.destinations or root in handed or not covers_root(value, self.aliases):
                deliveries.append(OutputDelivery("copy"))
            elif storage is not None and storage.home is not None and storage.home in self.outlets.donors:
                is_alike = storage.home.type == value.type
                deliveries.append(OutputDelivery("donor", storage.home) if is_alike else OutputDelivery("copy"))
            else:
                deliveries.append(OutputDelivery("own"))
            handed.add(root)
        return tuple(deliveries)

    # ------------------------------------------------------------------------------------ the conditions

    def _take_over(self, index: int, node: Node, kernel: Kernel) -> None:
        taken: dict[int, int] = {}
        for number, result in enumerate(node.results if kernel.is_each_in_place else node.results[:1]):
            if result in self.aliases or not result.type.nbytes:
                continue
            for position in kernel.in_place:
                operand = node.operands[position] if position < len(node.operands) else None
                if operand is None or not self._may_take(index, node, kernel, position, result, operand):
                    continue
                storage = self.storages[self.root_of(operand)]
                if any(self.storages[node.results[other]] is storage for other in taken):
                    continue
                storage.members.append(result)
                if storage.home is None and result in self.outlets.destinations:
                    storage.home = result
                self.storages[result] = storage
                taken[number] = position
                break
        if taken:
            self.in_place[node] = taken

    def _may_take(self, index: int, node: Node, kernel: Kernel, position: int, result: Value, operand: Value) -> bool:
        root = self.root_of(operand)
        is_same_map = (
            operand.type.shape == result.type.shape
            and operand.type.dtype.itemsize == result.type.dtype.itemsize
            and covers_root(operand, self.aliases)
        )
        dies_here = self.last_read[root] == index and root not in self.outlets.lasting
        return (
            is_same_map
            and dies_here
            and root in self.storages
            and self._may_share_home(result, self.storages[root].home)
            and all(
                self._is_read_alike(other, operand, k in kernel.in_place)
                for k, other in enumerate(node.operands)
                if other is not None and k != position
            )
        )

    def _is_read_alike(self, other: Value, operand: Value, is_safe: bool) -> bool:
        """Return whether `other` does not share bytes with `operand`, or is read element by element just as it is."""
        if self.root_of(other) is not self.root_of(operand):
            return True
        is_same_place = placement(other, self.aliases) == placement(operand, self.aliases)
        return is_safe and is_same_place and other.type == operand.type

    def _may_share_home(self, result: Value, home: Value | None) -> bool:
        """Return whether `result` may live in a donated leaf: an output only in its own, lest two be stored in one."""
        if home is None or result not in self.outlets.destinations:
            return True
        target = self.outlets.destinations[result]
        if home is target:
            return True
        # The caller gets a donated buffer back as the array that it was, so an output that is stored there has its type.
        is_spare = target is None and home not in frozenset(self.outlets.next_values.values())
        return is_spare and (home not in self.outlets.donors or home.type == result.type)

    def _move_into_donors(self) -> None:
        """Compute an output in the donated leaf it replaces, if that leaf was last read before."""
        for root, target in self.outlets.destinations.items():
            storage = self.storages[root]
            if target is None or storage.home is target:
                continue
            is_free = len(self.storages[target].members) == 1 and target not in self.outlets.lasting
            if is_free and self.last_read.get(target, -1) < storage.birth and root.type.nbytes == target.type.nbytes:
                storage.home = target

    def _births(self) -> dict[Value, int]:
        births: dict[Value, int] = {}
        for index, (node, _) in enumerate(self.steps):
            for value in node.results:
                births.setdefault(self.root_of(value), index)
        return births

    def _last_reads(self) -> dict[Value, int]:
        last_reads: dict[Value, int] = {}
        for index, (node, _) in enumerate(self.steps):
            for value in node.present():
                last_reads[self.root_of(value)] = index
        return last_reads
