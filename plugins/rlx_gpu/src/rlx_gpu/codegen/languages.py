"""GPU languages for the printers: the syntax of types, literals, instructions, declarations and kernels.

The languages of the C family (OpenCL C, CUDA C, HIP, MSL) share one syntax of bodies: `u32`, `f32`, `RLX_GLOBAL` and every
function called `rlx_…` are defined by a prelude, so that the differences between them are a table and a head. WGSL has a
different grammar and overrides the methods. Integer registers are unsigned words, as in LLVM: the instruction determines
whether it is signed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from attrs import field

from rlx_core.ir.dtypes import DType, bool_, f32, i8, i16, i32
from rlx_core.system.records import frozen
from rlx_gpu.codegen.registers import (
    INSTRUCTIONS,
    INVERSE,
    OF_BOOLS,
    ORDERED,
    SIGNED,
    exact_numeral,
    signed,
    spelled,
    stored_dtype,
)
from rlx_gpu.codegen.units.matrix_units import MatrixUnit

if TYPE_CHECKING:
    from rlx_core.codegen.scalars.table import ScalarTable
    from rlx_core.emit.emitters import Emitted
    from rlx_gpu.codegen.tiles import TiledProduct
    from rlx_gpu.codegen.walks import Machine

BufferKind = Literal["offset", "pointer", "words"]
"""The form in which a launch passes a buffer: memory and a byte offset, an address that includes it, or an offset in words."""


@frozen
class Builtin:
    """A function of a language: its call, and the error in ulp of f32 that the language promises; special values are right.

    The shared expression is printed instead where the promise is worse than `ACCURATE` and there is one.
    """

    text: str
    ulp: float


ACCURATE = 4.0


@frozen
class Argument:
    """One buffer of a kernel, as its head declares it."""

    name: str
    dtype: DType
    is_written: bool


class ProductTemplate(Protocol):
    """Prints the function of a product that `product_refusal` accepts."""

    def __call__(
        self, problem: TiledProduct, language: GpuDialect, machine: Machine, scalars: ScalarTable
    ) -> Emitted: ...


@frozen(kw_only=True)
class GpuDialect:
    """A GPU language: a record for one of the C family; a language with another grammar overrides the methods that differ.

    Optional capabilities are fields whose default means that the language does not have them: `matrix_unit`,
    `product_template`, `exchanged_dtypes`, `most_arguments`, `one_entry`.

    Attributes:
        name: The user-visible name: "opencl", "cuda".
        suffix: Suffix of a source file.
        dtypes: Element types that a kernel may access; others are refused by name.
        buffers: The form in which a launch passes them.
        base: Text that every module starts with: types and qualifiers.
        fragments: Functions, by name, that a module contains if it uses them.
        builtins: Scalar ops that the language computes itself, by their full name, with their guarantees.
        inexact: Instructions of the language that are not exact; where exact results are required, others are used.
        options: Compiler options required for correct results.
        exchanged_dtypes: Registers that the threads of a subgroup can exchange.
        matrix_unit: The matrix unit, if devices of the language have one.
        product_template: The template of all products in place of the ones of `products`, if the language has one.
        most_arguments: Buffers and numbers that a kernel may be given, where these are few.
        one_entry: Whether a module holds one kernel, because its memory is declared outside of it.
        head: The kernel's head, of `size`, `name` and `arguments`.
        argument: A buffer in the head, by how it is passed.
        status: The status words in the head.
        thread: The number of a thread in its group, as u32; `group` is the number of the group.
        barrier: Barrier of all threads of a group; `memory_barrier` also makes their writes to global memory visible.
        unrolled: Pragma before a loop with a known number of iterations.
        forever: The start of a loop that only a `break` ends.
    """

    name: str
    suffix: str
    dtypes: frozenset[DType]
    buffers: BufferKind
    base: str
    fragments: Mapping[str, str] = field(factory=dict, eq=False)
    builtins: Mapping[str, Builtin] = field(factory=dict, eq=False)
    inexact: frozenset[str] = frozenset()
    options: tuple[str, ...] = ()
    exchanged_dtypes: frozenset[DType] = frozenset()
    matrix_unit: MatrixUnit | None = field(default=None, eq=False)
    product_template: ProductTemplate | None = None
    most_arguments: int | None = None
    one_entry: bool = False
    head: str = ""
    argument: str = ""
    status: str = ""
    thread: str = "rlx_thread()"
    group: str = "rlx_group()"
    barrier: str = "rlx_barrier();"
    memory_barrier: str = "rlx_memory_barrier();"
    unrolled: str = "RLX_UNROLL "
    forever: str = "for (;;) {"

    # -------------------------------------------------------------------------------- types, literals

    def type(self, dtype: DType) -> str:
        """A register's type."""
        return spelled(dtype)

    def literal(self, dtype: DType, number: bool | int | float) -> str:
        """A number of a register's type, exactly."""
        if dtype is bool_:
            return "true" if number else "false"
        if dtype.is_float:
            return self.float_literal(dtype, float(number))
        integer = int(number) % (1 << 8 * dtype.itemsize)
        text = str(integer) if integer < 1 << 16 else hex(integer)
        if dtype in (i8, i16):
            return f"(({spelled(dtype)}){text})"
        return f"{text}u" if dtype is i32 else f"((u64){text})"

    def float_literal(self, dtype: DType, number: float) -> str:
        rounded = float(np.float32(number)) if dtype is f32 else number
        if not math.isfinite(rounded):
            bits = int(np.asarray(rounded, dtype.numpy).view(f"u{dtype.itemsize}"))
            return self.from_bits(dtype, f"{bits:#x}{'u' if dtype is f32 else ''}")
        text = exact_numeral(rounded) + ("f" if dtype is f32 else "")
        return f"({text})" if text.startswith("-") else text

    def bits(self, dtype: DType, text: str) -> str:
        return f"rlx_u{8 * dtype.itemsize}_of_f{8 * dtype.itemsize}({text})"

    def from_bits(self, dtype: DType, text: str) -> str:
        return f"rlx_f{8 * dtype.itemsize}_of_u{8 * dtype.itemsize}({text})"

    # ---------------------------------------------------------------------------------- instructions

    def instruction(self, name: str, dtype: DType, *args: str) -> str:
        """An instruction on registers of `dtype`, as an expression."""
        if dtype is bool_ and name in OF_BOOLS:
            return OF_BOOLS[name].format(*args)
        if name in SIGNED:
            count = args[1] if name == "ashr" else f"({signed(dtype)}){args[1]}"
            return f"({spelled(dtype)})(({signed(dtype)}){args[0]} {SIGNED[name]} {count})"
        if dtype in (i8, i16) and name in INSTRUCTIONS:
            # Narrow operands become `int`, whose product may overflow.
            return f"({spelled(dtype)})({INSTRUCTIONS[name].format(*(f'(u32){a}' for a in args))})"
        return INSTRUCTIONS[name].format(*args)

    def compared(self, relation: str, dtype: DType, x: str, y: str, *, is_signed: bool) -> str:
        """Whole numbers or booleans compared."""
        if is_signed:
            x, y = f"({signed(dtype)}){x}", f"({signed(dtype)}){y}"
        return f"{x} {relation} {y}"

    def ordered(self, relation: str, x: str, y: str) -> str:
        """Floats compared, false where one is NaN."""
        return ORDERED.get(relation, f"{{0}} {relation} {{1}}").format(x, y)

    def unordered(self, relation: str, x: str, y: str) -> str:
        """Floats compared, true where one is NaN; `uno` asks only that."""
        if relation == "uno":
            return f"{x} != {x}" if x == y else f"{x} != {x} || {y} != {y}"
        if relation == "!=":
            return f"{x} != {y}"
        if relation == "==":
            return f"!({x} < {y} || {x} > {y})"
        return f"!({x} {INVERSE[relation]} {y})"

    def select(self, condition: str, yes: str, no: str) -> str:
        return f"{condition} ? {yes} : {no}"

    def resized(self, x: str, source: DType, to: DType, *, is_signed: bool) -> str:
        """A whole number or boolean in another width, extended by its sign or by zeros."""
        if is_signed and to.itemsize > source.itemsize and source is not bool_:
            return f"({spelled(to)})({signed(to)})({signed(source)}){x}"
        return f"({spelled(to)}){x}"

    def float_of(self, x: str, source: DType, to: DType, *, is_signed: bool) -> str:
        """A number as a float, rounded to nearest."""
        return f"({spelled(to)})({signed(source)}){x}" if is_signed else f"({spelled(to)}){x}"

    def whole_of(self, x: str, source: DType, to: DType, *, is_signed: bool) -> str:
        """A float that lies in the range of `to` as a whole number, towards zero."""
        return f"({spelled(to)})({signed(to)}){x}" if is_signed else f"({spelled(to)}){x}"

    # ------------------------------------------------------------------------------------ statements

    def declared(self, type: str, name: str, text: str) -> str:
        return f"const {type} {name} = {text};"

    def variable(self, type: str, name: str, text: str | None = None) -> str:
        return f"{type} {name};" if text is None else f"{type} {name} = {text};"

    def array(self, type: str, name: str, size: int) -> str:
        """A thread's own array, which lies in registers once the loop over it is unrolled."""
        return f"{type} {name}[{size}];"

    def shared(self, type: str, name: str, size: int) -> str:
        """An array that the threads of a group share."""
        return f"RLX_SHARED {type} {name}[{size}];"

    def loop(self, kind: str, name: str, start: str, stop: str, step: str) -> str:
        return f"for ({kind} {name} = {start}; {name} < {stop}; {name} += {step}) {{"

    def function(self, result: str, name: str, parameters: Sequence[tuple[str, str]]) -> str:
        return f"RLX_FN {result} {name}({', '.join(f'{t} {n}' for t, n in parameters)}) {{"

    # ---------------------------------------------------------------------------------------- memory

    def index(self, text: str, kind: str) -> str:
        """A whole register that is not negative, as an index of type `kind`."""
        return f"({kind}){text}"

    def loaded(self, name: str, dtype: DType, index: str) -> str:
        """An element of a buffer, as a register of `stored_dtype`."""
        return f"{name}[{index}]"

    def stored(self, name: str, dtype: DType, index: str, text: str) -> str:
        """The statement that writes an element."""
        return f"{name}[{index}] = {text};"

    def loaded_words(self, name: str, dtype: DType, index: str, count: int, fresh: str) -> tuple[list[str], list[str]]:
        """`count` words (1, 2 or 4) from where an element lies: statements, and the words' names."""
        type = "u32" if count == 1 else f"u32x{count}"
        read = f"const {type} {fresh} = *(RLX_GLOBAL const {type}*)({name} + ({index}));"
        return [read], [fresh] if count == 1 else [f"{fresh}.{part}" for part in "xyzw"[:count]]

    def stored_words(self, name: str, dtype: DType, index: str, words: Sequence[str], fresh: str) -> list[str]:
        """The statements that write words from where an element lies."""
        type = "u32" if len(words) == 1 else f"u32x{len(words)}"
        if len(words) == 1:
            return [f"*(RLX_GLOBAL u32*)({name} + ({index})) = {words[0]};"]
        parts = [f"{fresh}.{part} = {word};" for part, word in zip("xyzw", words, strict=False)]
        return [f"{type} {fresh};", " ".join(parts), f"*(RLX_GLOBAL {type}*)({name} + ({index})) = {fresh};"]

    def joined(self, low: str, high: str) -> str:
        """Two words as one of 64 bits."""
        return f"((u64){high} << 32) | {low}"

    def parted(self, text: str) -> tuple[str, str]:
        """The lower and the upper word of one of 64 bits."""
        return f"(u32){text}", f"(u32)({text} >> 32)"

    def exchanged(self, name: str, distance: int) -> str:
        """Return the value of a register in the thread at `lane ^ distance` of the subgroup."""
        return f"rlx_exchange({name}, {distance}u)"

    def fault(self, site: int, place: str, index: str) -> str:
        """Return the statement that reports a place and the index there, of 64 bits; a site keeps the lowest place."""
        return f"rlx_fault(status, site + {site}u, {place}, {index});"

    def kernel(
        self, name: str, size: int, arguments: Sequence[Argument], shared: Sequence[str], uses_status: bool
    ) -> list[str]:
        """The head of a kernel, its shared arrays and the names of its memory, up to its first statement."""
        declared = [
            self.argument.format(
                type=spelled(stored_dtype(a.dtype)), name=a.name, number=i, const="" if a.is_written else "const "
            )
            for i, a in enumerate(arguments)
        ]
        if uses_status:
            declared.append(self.status.format(number=len(arguments), next=len(arguments) + 1))
        lines = [self.head.format(size=size, name=name, arguments=", ".join(declared))]
        if self.buffers == "offset":
            for a in arguments:
                type = f"RLX_GLOBAL {'' if a.is_written else 'const '}{spelled(stored_dtype(a.dtype))}*"
                lines.append(f"  {type} {a.name} = ({type})({a.name}_memory + {a.name}_offset);")
        return [*lines, *(f"  {line}" for line in shared)]

    # --------------------------------------------------------------------------------------- modules

    def module(self, functions: Iterable[str]) -> str:
        """A whole source: the base, those fragments that are used, and the functions in their order."""
        return self._module(list(functions), self.base, self.fragments)

    @staticmethod
    def _module(text: Sequence[str], base: str, fragments: Mapping[str, str]) -> str:
        used: set[str] = set()
        waiting = [name for part in (base, *text) for name in _NAME.findall(part)]
        while waiting:
            name = waiting.pop()
            if name in fragments and name not in used:
                used.add(name)
                waiting += _NAME.findall(fragments[name])
        prelude = [fragments[name].strip() for name in fragments if name in used]
        return "\n".join([base.strip(), *prelude, "", *text])

    def refusal(self, dtype: DType) -> str | None:
        """Return why values of a dtype cannot be computed, as "needs …" would continue."""
        return None if dtype in self.dtypes else f"{dtype} in {self.name}"


_NAME = re.compile(r"\brlx_\w+")
