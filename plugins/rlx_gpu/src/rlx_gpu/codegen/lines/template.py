"""Helpers of structured templates: the body of one function, its buffers, its shared memory, and the distribution of work.

A template is the text of an algorithm that is no loop kernel, for the same languages. Integer index expressions are text in the
common syntax of C and WGSL; elements are accessed through `Memory` and the assembler.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import field

from rlx_core.codegen.places import Fault
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_core.ir.dtypes import DType, i8, i16, i32, i64
from rlx_core.system.records import define
from rlx_gpu.codegen.assembler import Register, TextAssembler
from rlx_gpu.codegen.functions import assembled, each_group
from rlx_gpu.codegen.indexing import IndexType, as_index, index_type
from rlx_gpu.codegen.languages import Argument, GpuDialect
from rlx_gpu.codegen.memory import Memory
from rlx_gpu.codegen.registers import register_dtype
from rlx_gpu.codegen.walks import Machine


def bits_dtype(dtype: DType) -> DType:
    """The whole number of the size of an element, for what only moves its bits."""
    return {1: i8, 2: i16, 4: i32, 8: i64}[dtype.itemsize]


@define(eq=False)
class Template:
    """One function while it is written.

    Attributes:
        group: Threads of a group.
        elements: The most elements that a buffer has, which decides the type of an index.
        shared: Declarations of the memory that a group shares.
    """

    language: GpuDialect
    machine: Machine
    scalars: ScalarTable
    group: int
    elements: int
    b: TextAssembler = field(init=False)
    memory: Memory = field(init=False)
    shared: list[str] = field(factory=list)
    _arguments: dict[int, Argument] = field(factory=dict)
    _groups: int = 1

    def __attrs_post_init__(self) -> None:
        self.b = TextAssembler(self.language)
        self.memory = Memory(self.b, self.kind)

    @property
    def kind(self) -> IndexType:
        """The type of an index into memory."""
        return index_type(self.elements)

    @property
    def thread(self) -> str:
        return self.language.thread

    # ---------------------------------------------------------------------------------------- memory

    def buffer(self, number: int, dtype: DType, *, is_written: bool = False) -> str:
        """The name of a buffer, whose elements are taken for `dtype`."""
        if number not in self._arguments:
            self._arguments[number] = Argument(f"m{len(self._arguments)}", dtype, is_written)
        return self._arguments[number].name

    def array(self, dtype: DType, size: int, stem: str = "shared") -> str:
        """Memory of the group, for registers of `dtype`."""
        name = f"{stem}{len(self.shared)}"
        self.shared.append(self.language.shared(self.language.type(register_dtype(dtype)), name, size))
        return name

    def read(self, name: str, dtype: DType, index: str) -> Register:
        """An element of an array."""
        return self.b.named(f"{name}[{index}]", register_dtype(dtype))

    def write(self, name: str, index: str, value: Register) -> None:
        self.b.line(f"{name}[{index}] = {value.text};")

    # ------------------------------------------------------------------------------------------ text

    def number(self, text: str, stem: str = "n", kind: str = "u32") -> str:
        """A name for a whole number."""
        name = self.b.fresh(stem)
        self.b.let(name, text, kind)
        return name

    def variable(self, text: str, stem: str = "n", kind: str = "u32") -> str:
        """A name for a whole number that changes."""
        name = self.b.fresh(stem)
        self.b.line(self.language.variable(kind, name, text))
        return name

    def wide(self, text: str) -> str:
        """A whole number of 32 bits as an index into memory."""
        return as_index(text, self.kind)

    def chosen(self, condition: str, yes: str, no: str) -> str:
        return f"({self.language.select(f'({condition})', yes, no)})"

    def word(self, text: str) -> Register:
        """A whole number of 32 bits as a register."""
        return Register(text if text.isalnum() else f"({text})", i32)

    def line(self, number: str, n: int, inner: int) -> str:
        """Return the start of a line of dense `[outer, n, inner]`, from its number among `outer·inner`."""
        text = f"{number} * {n}u" if inner == 1 else f"({number} / {inner}u) * {n * inner}u + {number} % {inner}u"
        return self.number(text, "base", self.kind)

    def element(self, base: str, place: str, inner: int) -> str:
        """The index of an element of a line, of its place in it."""
        return f"{base} + {self.wide(place)}" if inner == 1 else f"{base} + {self.wide(place)} * {inner}u"

    @contextmanager
    def loop(self, start: str, stop: str, step: str = "1u", stem: str = "k", kind: str = "u32") -> Iterator[str]:
        name = self.b.fresh(stem)
        with self.b.loop(name, start, stop, step, kind):
            yield name

    @contextmanager
    def forever_while(self, condition: str) -> Iterator[None]:
        """Lines that repeat as long as a condition on variables holds."""
        with self.b.block(self.language.forever):
            self.b.line(f"if (!({condition})) {{ break; }}")
            yield

    # ---------------------------------------------------------------------------------------- shares

    @contextmanager
    def each_group(self, shares: int) -> Iterator[str]:
        """The number of a share that the whole group has; it may have several."""
        self._groups = max(min(shares, self.machine.most_groups), 1)
        name = self.b.fresh("i")
        with each_group(self.b, name, shares, self._groups):
            yield name

    @contextmanager
    def each_thread(self, shares: int) -> Iterator[str]:
        """The number of a share that one thread has."""
        groups = -(-shares // self.group)
        self._groups = max(min(groups, self.machine.most_groups), 1)
        first = f"{self.wide(self.language.group)} * {self.group}u + {self.thread}"
        with self.loop(first, f"{shares}u", f"{self._groups * self.group}u", "i", self.kind) as i:
            yield i

    def done(self, stem: str, faults: tuple[Fault, ...] = ()) -> Emitted:
        """The function that was written; `faults` are those that its sites report."""
        return assembled(stem, self.b, self._arguments, self.shared, self.group, self._groups, faults)
