"""Scalar code as text: every instruction of the assembler protocol declares a name in a GPU language.

Narrow floats are f32 in registers and integers are unsigned words. A constant is its literal. An operation that a language does
not have, or not exactly, is expanded to others: for example the float remainder, bit by bit, where `fmod` is approximate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from attrs import field

from rlx_core.codegen.scalars.assembler import Relation
from rlx_core.codegen.scalars.floats import scaled_in_two
from rlx_core.ir.dtypes import DType, bf16, bool_, f16, f32, i32, i64
from rlx_core.system.records import define, frozen
from rlx_gpu.codegen.registers import register_dtype, stored_dtype
from rlx_gpu.codegen.remainder import remainder
from rlx_gpu.codegen.writer import Writer


@frozen
class Register:
    """A value of the text: a name or a literal, which needs no parentheses."""

    text: str
    dtype: DType


def _of_one(name: str) -> Callable[[TextAssembler, Register], Register]:
    """Return the method that writes an instruction on one register, whose result is of the same type."""
    return lambda b, x: b.instruction(name, x)


def _of_two(name: str) -> Callable[[TextAssembler, Register, Register], Register]:
    """Return the method that writes an instruction on two registers of a type, whose result is of that type."""
    return lambda b, x, y: b.instruction(name, x, y)


@define(eq=False)
class TextAssembler(Writer):
    """Writes scalar code into one function; `functions` are those of the whole module, by name."""

    functions: dict[str, str] = field(factory=dict, kw_only=True)
    _results: dict[str, DType] = field(factory=dict, kw_only=True)

    @property
    def fuses(self) -> bool:
        return "fma" not in self.language.inexact

    # ---------------------------------------------------------------------------------------- types

    def dtype_of(self, x: Register) -> DType:
        return x.dtype

    def constant(self, like: Register, number: bool | int | float) -> Register:
        return self.literal(like.dtype, number)

    def number(self, dtype: DType, number: bool | int | float, beside: Register) -> Register:
        return self.literal(dtype, number)

    def literal(self, dtype: DType, number: bool | int | float) -> Register:
        """A constant of a register's dtype."""
        return Register(self.language.literal(dtype, number), dtype)

    def truth(self, like: Register, number: bool) -> Register:
        return self.literal(bool_, number)

    def bits(self, x: Register) -> Register:
        return self.named(self.language.bits(x.dtype, x.text), i32 if x.dtype is f32 else i64)

    def from_bits(self, x: Register, like: Register) -> Register:
        return self.named(self.language.from_bits(like.dtype, x.text), like.dtype)

    def converted(self, x: Register, source: DType, to: DType) -> Register:
        dtype = register_dtype(to)
        if source is to or (x.dtype is dtype and to.is_float):
            return x
        if source.is_float and to.is_float:
            return self.named(self.language.float_of(x.text, x.dtype, dtype, is_signed=False), dtype)
        if source.is_float:
            return self._whole_of(x, to)
        is_signed = source.kind == "int"
        if to.is_float:
            if source is bool_:
                return self.select(x, self.literal(dtype, 1), self.literal(dtype, 0))
            return self.named(self.language.float_of(x.text, x.dtype, dtype, is_signed=is_signed), dtype)
        return self.resized(x, dtype, is_signed=is_signed)

    def resized(self, x: Register, to: DType, *, is_signed: bool) -> Register:
        """A whole number or boolean as a register of another width."""
        if x.dtype is to:
            return x
        return self.named(self.language.resized(x.text, x.dtype, to, is_signed=is_signed), to)

    def _whole_of(self, x: Register, to: DType) -> Register:
        """Return x truncated, clamped to the range of `to`, NaN as 0."""
        dtype, bits = register_dtype(to), 8 * to.itemsize
        is_signed = to.kind == "int"
        low, high = (-(1 << bits - 1), 1 << bits - 1) if is_signed else (0, 1 << bits)
        is_above = self.fcmp_ordered(">=", x, self.constant(x, float(high)))
        is_inside = self.and_(
            self.fcmp_ordered(">=" if is_signed else ">", x, self.constant(x, float(low))), self.not_(is_above)
        )
        # Values out of range are not converted: the result is undefined in C.
        inside = self.select(is_inside, x, self.constant(x, 0.0))
        integer = self.named(self.language.whole_of(inside.text, x.dtype, dtype, is_signed=is_signed), dtype)
        integer = self.select(is_above, self.literal(dtype, high - 1), integer)
        if not is_signed:
            return integer
        is_below = self.fcmp_ordered("<", x, self.constant(x, float(low)))
        return self.select(is_below, self.literal(dtype, low), integer)

    def narrowed(self, x: Register, to: DType) -> Register:
        """The 16 bits that an f32 is stored as."""
        assert to in (f16, bf16), "f32 is narrowed to 16 bits"
        return self.named(f"rlx_{to}_of_f32({x.text})", stored_dtype(to))

    def widened(self, x: Register, source: DType) -> Register:
        """The f32 that 16 stored bits are."""
        return self.named(f"rlx_f32_of_{source}({x.text})", f32)

    # --------------------------------------------------------------------------------------- floats

    fadd = _of_two("fadd")
    fsub = _of_two("fsub")
    fmul = _of_two("fmul")
    fdiv = _of_two("fdiv")
    fneg = _of_one("fneg")
    fabs = _of_one("fabs")
    copysign = _of_two("copysign")
    sqrt = _of_one("sqrt")
    floor = _of_one("floor")
    ceil = _of_one("ceil")
    trunc_float = _of_one("trunc_float")
    rint = _of_one("rint")

    def fma(self, x: Register, y: Register, z: Register) -> Register:
        return self.instruction("fma", x, y, z)

    def frem(self, x: Register, y: Register) -> Register:
        if "frem" in self.language.inexact:
            return self.invoke("remainder", remainder, (x, y), is_inline=False)
        return self.instruction("frem", x, y)

    def scaled(self, x: Register, whole: Register, n: Register) -> Register:
        return scaled_in_two(self, x, n)

    def library(self, name: Literal["sin", "cos", "tan"], x: Register) -> Register:
        return self.named(f"{name}({x.text})", x.dtype)

    def fcmp_ordered(self, relation: Relation, x: Register, y: Register) -> Register:
        return self.named(self.language.ordered(relation, x.text, y.text), bool_)

    def fcmp_unordered(self, relation: Relation | Literal["uno"], x: Register, y: Register) -> Register:
        return self.named(self.language.unordered(relation, x.text, y.text), bool_)

    # ------------------------------------------------------------------------------------- integers

    add = _of_two("add")
    sub = _of_two("sub")
    mul = _of_two("mul")
    neg = _of_one("neg")
    sdiv = _of_two("sdiv")
    udiv = _of_two("udiv")
    srem = _of_two("srem")
    urem = _of_two("urem")
    and_ = _of_two("and_")
    or_ = _of_two("or_")
    xor = _of_two("xor")
    not_ = _of_one("not_")
    shl = _of_two("shl")
    lshr = _of_two("lshr")
    ashr = _of_two("ashr")

    def icmp_signed(self, relation: Relation, x: Register, y: Register) -> Register:
        return self.named(
            self.language.compared(relation, x.dtype, x.text, y.text, is_signed=x.dtype is not bool_), bool_
        )

    def icmp_unsigned(self, relation: Relation, x: Register, y: Register) -> Register:
        return self.named(self.language.compared(relation, x.dtype, x.text, y.text, is_signed=False), bool_)

    # -------------------------------------------------------------------------------------- control

    def select(self, condition: Register, yes: Register, no: Register) -> Register:
        return self.named(self.language.select(condition.text, yes.text, no.text), yes.dtype)

    def rarely(self, condition: Register, make: Callable[[], Register], usual: Register) -> Register:
        name = self.variable(usual)
        with self.when(condition.text):
            self.assign(name, make())
        return name

    def repeated(
        self,
        state: Sequence[Register],
        goes_on: Callable[[Sequence[Register]], Register],
        body: Callable[[Sequence[Register]], Sequence[Register]],
    ) -> tuple[Register, ...]:
        names = [self.variable(s) for s in state]
        with self.block(self.language.forever):
            self.line(f"if (!{goes_on(names).text}) {{ break; }}")
            results = body(names)
            # A value that is itself one of the names must be read before that name is written.
            assigned = [self.named(m.text, m.dtype) if m in names else m for m in results]
            for name, value in zip(names, assigned, strict=True):
                self.assign(name, value)
        return tuple(names)

    def invoke(
        self, name: str, make: Callable[..., Register], args: Sequence[Register], *, is_inline: bool
    ) -> Register:
        words = (name, *dict.fromkeys(str(a.dtype) for a in args))
        full = "rlx_" + "".join(c if c.isalnum() else "_" for c in "_".join(words))
        if full not in self._results:
            inner = TextAssembler(self.language, functions=self.functions, results=self._results)
            parameters = [Register(inner.fresh("x"), a.dtype) for a in args]
            result = make(inner, *parameters)
            type = self.language.type
            head = self.language.function(type(result.dtype), full, [(type(p.dtype), p.text) for p in parameters])
            # Functions that it calls were added before it.
            self.functions[full] = "\n".join([head, *inner.lines, f"  return {result.text};", "}"])
            self._results[full] = result.dtype
        return self.named(f"{full}({', '.join(a.text for a in args)})", self._results[full])

    # ----------------------------------------------------------------------------------------- text

    def named(self, text: str, dtype: DType, prefix: str = "v") -> Register:
        """Assign an expression to a new name."""
        name = self.fresh(prefix)
        self.let(name, text, self.language.type(dtype))
        return Register(name, dtype)

    def variable(self, start: Register, prefix: str = "s") -> Register:
        """A name that may be assigned."""
        name = self.fresh(prefix)
        self.line(self.language.variable(self.language.type(start.dtype), name, start.text))
        return Register(name, start.dtype)

    def assign(self, name: Register, value: Register) -> None:
        self.line(f"{name.text} = {value.text};")

    def call(self, text: str, dtype: DType, *args: Register) -> Register:
        """A function of the language, of which `text` is the call with places for its arguments."""
        return self.named(text.format(*(a.text for a in args)), dtype)

    def instruction(self, name: str, *args: Register) -> Register:
        """An instruction whose result is of its operands' type."""
        dtype = args[0].dtype
        return self.named(self.language.instruction(name, dtype, *(a.text for a in args)), dtype)
