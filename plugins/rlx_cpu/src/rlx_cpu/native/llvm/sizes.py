"""Sizes that come with the call: expressions of them as values of generated code.

The caller computes what the code asks for and puts it in front of the addresses that a function is given: word `i` lies
`8·(i + 1)` bytes before them. A function reads each word once, when it begins.
"""

from __future__ import annotations

from typing import Final

from attrs import field

from rlx_core.ir.dims import Dim, Expr
from rlx_core.system.records import define
from rlx_cpu.native.llvm import ir

__all__ = ["ModuleSizes", "Unsized", "is_known", "sized", "sizes_of"]

_I64: Final = ir.IntType(64)


class Unsized(Exception):
    """Code cannot be made for all sizes; the text says what it would have to know, as "needs …" continues."""


@define(eq=False)
class ModuleSizes:
    """What the functions of one module ask for.

    Attributes:
        argument: Which argument of the functions is the address of the words, one after the other; `None` where they lie in front
            of the addresses.
        words: Expression → its word.
    """

    argument: int | None = None
    words: dict[Expr, int] = field(factory=dict)
    _values: dict[tuple[str, Expr], ir.LlvmValue] = field(factory=dict)

    def given(self, b: ir.IRBuilder, size: Expr, value: ir.LlvmValue) -> None:
        """What a size is in the function that is being written, where that is known from its caller."""
        self._values[b.function.name, size] = value

    def value(self, b: ir.IRBuilder, size: Expr) -> ir.LlvmValue:
        """A size in the function that is being written, whose first argument is where its addresses are."""
        key = b.function.name, size
        if key not in self._values:
            assert b.function.linkage != "internal", "only functions that the runtime calls are told sizes"
            word = self.words.setdefault(size, len(self.words))
            with b.goto_entry_block():
                nbytes = -8 * (word + 1) if self.argument is None else 8 * word
                place = b.moved(b.function.args[self.argument or 0], ir.LlvmConstant(_I64, nbytes))
                self._values[key] = b.load(place, typ=_I64, align=8)
        return self._values[key]


def is_known(size: Dim) -> bool:
    """Whether a size is a number."""
    return isinstance(size, int)


def sized(b: ir.IRBuilder, size: Dim) -> ir.LlvmValue:
    """A number as i64: a constant where it is known."""
    return ir.LlvmConstant(_I64, size) if isinstance(size, int) else sizes_of(b).value(b, size)


def sizes_of(b: ir.IRBuilder) -> ModuleSizes:
    """What the functions of the module that is being written are told."""
    found = b.module.sizes
    assert isinstance(found, ModuleSizes), "a module whose functions are told sizes has a place for them"
    return found
