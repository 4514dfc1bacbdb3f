"""Sort keys (`codegen.ordering`) of elements in memory, and rows of them."""

from __future__ import annotations

from typing import Any

from rlx_core.codegen.ordering import Keys
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.ir.numbers import in_lanes
from rlx_cpu.native.llvm.isa import Isa


def key_type(keys: Keys, lanes: int = 1) -> Any:
    """Return the type of a key, and of an element in memory."""
    return in_lanes(ir.IntType(keys.bits), lanes)


def load_keys(b: ir.IRBuilder, keys: Keys, place: ir.LlvmValue, lanes: int = 1) -> ir.LlvmValue:
    """The keys of neighbours in memory."""
    return keys.of(b, b.load(place, typ=key_type(keys, lanes), align=keys.dtype.itemsize))


@frozen
class KeyRow:
    """A row of `n` elements, and their sort keys."""

    isa: Isa
    keys: Keys
    n: int

    @property
    def size(self) -> int:
        """Bytes of an element, of a key, and of a place."""
        return self.keys.dtype.itemsize

    @property
    def lanes(self) -> int:
        return self.isa.lanes(self.keys.dtype)
