"""Where the values of a program lie on a device: in which space, and at which byte of it.

A *space* is memory that has an address of its own: the arena, the constants, each parameter, each input, and each buffer that
is handed to the caller. A frame has some of them for good and gets the others with every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from rlx_core.ir.graph import Constant, Graph, Value, leaf_name
from rlx_core.ir.lir import Lir
from rlx_core.ir.strides import Strides, is_dense
from rlx_core.pipeline.planning.alias import placement
from rlx_core.system.records import frozen

__all__ = ["ARENA", "CONSTANTS", "STATUS", "WORKSPACE", "Places", "Space", "Spot", "aligned"]


class Space(NamedTuple):
    """Memory with an address of its own."""

    kind: Literal["arena", "workspace", "status", "constants", "param", "input", "own"]
    number: int = 0


ARENA: Final = Space("arena")
WORKSPACE: Final = Space("workspace")
STATUS: Final = Space("status")
CONSTANTS: Final = Space("constants")


@frozen
class Spot:
    """Where a value lies: bytes from the start of a space, and the strides from there."""

    space: Space
    offset: int
    strides: Strides


class Places:
    """The places of all values of a planned program.

    Attributes:
        params: The names of the parameters, by number.
        owned: The roots of the buffers that are handed to the caller, by number.
        constants: Constant → its byte in the space of constants, in which all of them would lie.
        constants_nbytes: The size of that space.
    """

    def __init__(self, lir: Lir) -> None:
        self.lir = lir
        self.params = [leaf_name(v) for v in lir.graph.params]
        self.owned = list(dict.fromkeys(lir.own_roots))
        self.constants, self.constants_nbytes = laid_out(lir.graph, lir.alignment)
        self._roots: dict[Value, tuple[Space, int]] = {v: (ARENA, slot.offset) for v, slot in lir.slots.items()}
        self._roots |= {v: (CONSTANTS, offset) for v, offset in self.constants.items()}
        self._roots |= {v: (Space("param", i), 0) for i, v in enumerate(lir.graph.params)}
        self._roots |= {entry.value: (Space("input", i), 0) for i, entry in enumerate(lir.manifest.inputs)}
        self._roots |= {v: (Space("own", i), 0) for i, v in enumerate(self.owned)}

    def of(self, value: Value) -> Spot:
        """Where a value with elements lies."""
        place = placement(value, self.lir.aliases)
        space, start = self._roots[place.root]
        return Spot(space, start + place.byte_offset, place.strides)

    def is_dense(self, value: Value) -> bool:
        """Whether a value's elements lie in order, without gaps."""
        return is_dense(value.type, placement(value, self.lir.aliases).strides)


def laid_out(graph: Graph, alignment: int) -> tuple[Mapping[Value, int], int]:
    """The constants of a graph one after the other, and the bytes of all."""
    found: dict[Value, int] = {}
    end = 0
    for node in graph.nodes:
        if isinstance(node.op, Constant):
            found[node.result] = end
            end += aligned(node.op.value.array.nbytes, alignment)
    return found, end


def aligned(nbytes: int, alignment: int) -> int:
    """`nbytes`, rounded up so that what follows is aligned too."""
    return -(-nbytes // alignment) * alignment
