"""Parser of the text form of loop kernels (`text.py` describes and prints it).

Lines come in the order in which they are printed: buffers, values, stores. There is no error recovery: a syntax error is a
FormatError with its line and column, the expected token and the actual text. `check_kernel` verifies the rules of the language.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias, get_args

from rlx_core.codegen.loops import Apply, Bound, Buffer, Combine, Const, Index, Kernel, Load, Reduce, Scalar, Store
from rlx_core.errors import nearest
from rlx_core.ir.attributes import OpTable
from rlx_core.ir.dtypes import ALL, DType
from rlx_core.ir.parse import Parser
from rlx_core.ir.scanner import INT, NUMBER, WORD
from rlx_core.ir.strides import WIDEST

_DTYPES: Final = {d.name: d for d in ALL}
_VALUE: Final = re.compile(r"%\d{1,9}", re.ASCII)
_AXIS: Final = re.compile(r"[gr]\d{1,9}", re.ASCII)
_COMBINE: Final[dict[str, Combine]] = {word: word for word in get_args(Combine)}
_BOOLS: Final = {"True": True, "False": False}

Dynamic: TypeAlias = tuple[tuple[int, int], ...]
Make: TypeAlias = Callable[[DType], Scalar]


def parse_kernel(text: str, ops: OpTable) -> Kernel:
    """Return the kernel that `print_kernel` printed.

    Args:
        text: One kernel, followed only by comments.
        ops: Op name → class, as a registry has it.

    Raises:
        FormatError: The text is not a kernel; the message has the position.
    """
    parser = KernelParser(text, ops)
    kernel = parser.kernel()
    parser.end()
    return kernel


class KernelParser(Parser):
    """A text, and what was read of its kernel so far."""

    def __init__(self, text: str, ops: OpTable) -> None:
        super().__init__(text, ops)
        self.about = "kernel"
        self.extents: tuple[int, ...] = ()
        self.grid = 0
        self.buffers: list[Buffer] = []
        self.values: list[Scalar] = []
        self.marks: list[tuple[bool, int]] = []

    def kernel(self) -> Kernel:
        """`kernel NAME grid [...] row [...]`, then a buffer, value or store a line."""
        self.expect("kernel")
        name = self.name("the kernel's name")
        self.about = f"kernel {name}"
        self.expect("grid")
        grid = self.sizes()
        self.expect("row")
        self.extents, self.grid = (*grid, *self.sizes()), len(grid)
        while self.looks_at("operand") or self.looks_at("result"):
            self.buffers.append(self.buffer())
        while self.looks_at("%"):
            self.values.append(self.definition())
        stores: list[Store] = []
        while self.accept("store"):
            stores.append(self.store())
        self.skip()
        if self.position < len(self.text):
            self.fail(f"expected {'a value or ' if not stores else ''}`store`")
        kernel = Kernel(name, self.extents, self.grid, tuple(self.buffers), tuple(self.values), tuple(stores))
        for number, (varies, (is_marked, position)) in enumerate(zip(kernel.varies, self.marks, strict=True)):
            if varies != is_marked:
                message = "varies over the row: expected [row]" if varies else "is one a row: expected no [row]"
                self.fail(f"%{number} {message}", position=position)
        return kernel

    def sizes(self) -> tuple[int, ...]:
        """`[3, 5]`"""
        self.expect("[")
        result: list[int] = []
        while not self.accept("]"):
            result.append(self.integer("a size or `]`"))
            if not self.accept(",") and not self.looks_at("]"):
                self.fail("expected `,` or `]`")
        return tuple(result)

    def integer(self, what: str = "a number") -> int:
        return int(self.need(INT, what))

    # -- lines

    def buffer(self) -> Buffer:
        """`operand 0: x0 f32`"""
        is_result = self.accept("result")
        if not is_result:
            self.expect("operand")
        position = self.position
        number = self.integer("the buffer's number")
        if number != len(self.buffers):
            self.fail(f"expected buffer {len(self.buffers)}, the next one", position=position)
        self.expect(":")
        position = self.position
        name = self.name("the buffer's name")
        if any(b.name == name for b in self.buffers):
            self.fail(f"two buffers are called {name}", position=position)
        dtype = self.dtype()
        return Buffer(name, dtype, is_result, self.integer("its alignment") if self.accept("aligned") else WIDEST)

    def definition(self) -> Scalar:
        """`%1 = max over row of %0 : f32`"""
        position = self.position
        number = int(self.need(_VALUE, "a value")[1:])
        if number != len(self.values):
            self.fail(f"expected %{len(self.values)}, the next value", position=position)
        self.expect("=")
        start, outer = self.position, self.about
        build = self.made(start)
        self.about = outer
        self.expect(":")
        position = self.position
        dtype = self.dtype()
        self.marks.append((self.accept("[row]"), position))
        return build(dtype)

    def store(self) -> Store:
        """`%5 -> y0[g0*20 + r1*4]`, after its word"""
        value = self.earlier()
        self.expect("->")
        position = self.position
        buffer, strides, offset, dynamic = self.place()
        if dynamic:
            self.fail("a store has no index that is a value", position=position)
        return Store(buffer, value, strides, offset)

    # -- values

    def made(self, start: int) -> Make:
        """Return a constructor of a value that takes its dtype."""
        if self.accept("load"):
            buffer, strides, offset, dynamic = self.place()
            return lambda dtype: Load(buffer, dtype, strides, offset, dynamic)
        if self.accept("const"):
            number = self.literal_number()
            return lambda dtype: Const(dtype, number)
        if self.accept("index"):
            axis = self.axis()
            self.expect("*")
            scale = self.integer()
            offset = self.integer() if self.accept("+") else 0
            return lambda dtype: Index(dtype, axis, offset, scale)
        if self.accept("bound"):
            arg = self.earlier()
            self.expect("in")
            self.expect("0..")
            size = self.integer("the last index") + 1
            is_checked = self.accept("checked")
            return lambda dtype: Bound(dtype, arg, size, is_checked)
        word = self.take(WORD)
        if word in _COMBINE and self.accept("over"):
            combine = _COMBINE[word]
            self.expect("row")
            self.expect("of")
            arg = self.earlier()
            return lambda dtype: Reduce(dtype, combine, arg)
        self.position = start
        return self.apply(start)

    def apply(self, start: int) -> Make:
        """`sub(%0, %1)`, attributes last"""
        op_class = self.op_class()
        self.expect("(")
        args: list[int] = []
        while self.looks_at("%"):
            args.append(self.earlier())
            if not self.accept(","):
                break
        op = self.attributes(op_class, start)
        return lambda dtype: Apply(dtype, op, tuple(args))

    def literal_number(self) -> bool | int | float:
        position = self.position
        if (word := self.take(WORD)) in _BOOLS:
            return _BOOLS[word]
        self.position = position
        return self.number(self.need(NUMBER, "a number, True or False"), position)

    def earlier(self) -> int:
        """A value that is defined already."""
        position = self.position
        number = int(self.need(_VALUE, "a value")[1:])
        if number >= len(self.values):
            self.fail(f"%{number} is not defined before this", position=position)
        return number

    # -- places

    def place(self) -> tuple[int, tuple[int, ...], int, Dynamic]:
        """`x0[g0*20 + r1*4 + 8 + %3*4]`: the buffer, a stride an axis, the offset, indices that are values."""
        position = self.position
        name = self.name("a buffer")
        numbers = {b.name: i for i, b in enumerate(self.buffers)}
        if name not in numbers:
            self.fail(f"there is no buffer {name}", position=position, hint=nearest(name, numbers))
        strides, offset, dynamic = [0] * len(self.extents), 0, []
        self.expect("[")
        while True:
            position = self.position
            if self.looks_at("%"):
                value = self.earlier()
                self.expect("*")
                dynamic.append((value, self.integer("bytes")))
            elif self.looks_at("g") or self.looks_at("r"):
                axis = self.axis()
                self.expect("*")
                if strides[axis]:
                    self.fail("an axis has one stride", position=position)
                strides[axis] = self.integer("bytes")
            else:
                offset += self.integer("an axis, a value or bytes")
            if self.accept("]"):
                return numbers[name], tuple(strides), offset, tuple(dynamic)
            if not self.accept("+"):
                self.fail("expected `+` or `]`")

    def axis(self) -> int:
        """`g0` or `r1`: an axis of the grid or of the row."""
        position = self.position
        word = self.need(_AXIS, "an axis such as g0 or r1")
        number = int(word[1:])
        whose = range(self.grid) if word[0] == "g" else range(self.grid, len(self.extents))
        if number not in whose:
            known = ", ".join(f"{word[0]}{a}" for a in whose) or "none"
            self.fail(
                f"{word} is no axis of the {'grid' if word[0] == 'g' else 'row'} (those are {known})", position=position
            )
        return number

    def dtype(self) -> DType:
        position = self.position
        word = self.need(WORD, "a dtype")
        if word not in _DTYPES:
            self.fail(f"{word} is no dtype", position=position, hint=nearest(word, _DTYPES))
        return _DTYPES[word]
