"""Sizes as run-time arguments: size expressions as values of generated code.

The caller evaluates the size expressions that the code reads and stores them in front of the addresses that a function is
passed: word `i` is `8·(i + 1)` bytes before them. A function reads each word once, at its entry.
"""

from __future__ import annotations

from typing import Final

from attrs import field

from rlx_core.ir.dims import Dim, Expr
from rlx_core.system.records import define
from rlx_cpu.native.llvm import ir

_I64: Final = ir.IntType(64)


class Unsized(Exception):
    """Code cannot be generated for all sizes; the text names the missing fact, as a continuation of "needs …"."""


@define(eq=False)
class ModuleSizes:
    """The size expressions that the functions of one module read.

    Attributes:
        argument: Index of the argument that is the address of consecutive words; `None` if they precede the addresses.
        words: Expression → its word.
    """

    argument: int | None = None
    words: dict[Expr, int] = field(factory=dict)
    _values: dict[tuple[str, Expr], ir.LlvmValue] = field(factory=dict)

    def given(self, b: ir.IRBuilder, size: Expr, value: ir.LlvmValue) -> None:
        """Set the value of a size in the current function, if its caller passes it."""
        self._values[b.function.name, size] = value

    def value(self, b: ir.IRBuilder, size: Expr) -> ir.LlvmValue:
        """Return the value of a size in the current function, whose first argument is the address of its buffers."""
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
    """Return whether a size is a number."""
    return isinstance(size, int)


def sized(b: ir.IRBuilder, size: Dim) -> ir.LlvmValue:
    """A number as i64: a constant where it is known."""
    return ir.LlvmConstant(_I64, size) if isinstance(size, int) else sizes_of(b).value(b, size)


def sizes_of(b: ir.IRBuilder) -> ModuleSizes:
    """Return the run-time sizes of the functions of the current module."""
    sizes = b.module.sizes
    assert isinstance(sizes, ModuleSizes), "a module whose functions are told sizes has a place for them"
    return sizes
