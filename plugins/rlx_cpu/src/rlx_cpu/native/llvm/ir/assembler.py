"""LLVM's instructions as the assembler that scalar code is written against (`rlx_core.codegen.scalars`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rlx_core.ir.dtypes import DType, bool_, f32, f64
from rlx_cpu.native.llvm.ir.builder import Instructions
from rlx_cpu.native.llvm.ir.functions import Function, Module, declare
from rlx_cpu.native.llvm.ir.numbers import constant, dtype_of, element_of, in_lanes, integer_like, suffix, width
from rlx_cpu.native.llvm.ir.types import BIT, DoubleType, FloatType, FunctionType, IntType, Type, VectorType
from rlx_cpu.native.llvm.ir.values import LlvmConstant, LlvmValue, Undefined

I32: Final = IntType(32)
DOUBLE: Final = DoubleType()

SCALEF_LANES: Final = 16
"""Lanes of f32 in a register of AVX-512, the only set that has as many."""


def intrinsic(b: Instructions, name: str, *arguments: LlvmValue) -> LlvmValue:
    """An intrinsic whose result and operands have one type: `llvm.fma`."""
    type = arguments[0].type
    function = declare(b.module, f"{name}.{suffix(type)}", type, [a.type for a in arguments])
    return b.call(function, arguments)


def _unary(word: str) -> Callable[[Instructions, LlvmValue], LlvmValue]:
    return lambda b, x: intrinsic(b, f"llvm.{word}", x)


def new_function(module: Module, signature: FunctionType, name: str, *, is_internal: bool = False) -> IRBuilder:
    """Return a builder at the entry of a new function, which only its module calls if it `is_internal`."""
    function = Function(module, signature, name)
    if is_internal:
        function.linkage = "internal"
    return IRBuilder(function.append_basic_block("entry"))


class IRBuilder(Instructions):
    """An `Assembler` of LLVM values: scalars, or vectors of any number of lanes."""

    __slots__ = ()

    fuses: Final = True

    # ------------------------------------------------------------------------------------------ types

    def dtype_of(self, x: LlvmValue) -> DType:
        return dtype_of(x.type)

    def constant(self, like: LlvmValue, number: bool | int | float) -> LlvmValue:
        return constant(like.type, number)

    def number(self, dtype: DType, number: bool | int | float, beside: LlvmValue) -> LlvmValue:
        return constant(in_lanes(_element(dtype), width(beside)), number)

    def bits(self, x: LlvmValue) -> LlvmValue:
        return self.bitcast(x, integer_like(x.type))

    def from_bits(self, x: LlvmValue, like: LlvmValue) -> LlvmValue:
        return self.bitcast(x, like.type)

    def converted(self, x: LlvmValue, source: DType, to: DType) -> LlvmValue:
        type = in_lanes(_element(to), width(x))
        if source.is_float:
            if to.is_float:
                return self.fpext(x, type) if to.itemsize > source.itemsize else self.fptrunc(x, type)
            # Truncated toward zero, saturated, NaN to 0: the semantics of the intrinsic.
            name = f"llvm.fpto{'s' if to.kind == 'int' else 'u'}i.sat.{suffix(type)}.{suffix(x.type)}"
            return self.call(declare(self.module, name, type, [x.type]), [x])
        if to.is_float:
            return self.sitofp(x, type) if source.kind == "int" else self.uitofp(x, type)
        if to.itemsize < source.itemsize and source is not bool_:
            return self.trunc(x, type)
        if to.itemsize == source.itemsize and source is not bool_:
            return x
        return self.sext(x, type) if source.kind == "int" else self.zext(x, type)

    # ----------------------------------------------------------------------------------------- floats

    def fma(self, x: LlvmValue, y: LlvmValue, z: LlvmValue) -> LlvmValue:
        return intrinsic(self, "llvm.fma", x, y, z)

    def copysign(self, size: LlvmValue, sign: LlvmValue) -> LlvmValue:
        return intrinsic(self, "llvm.copysign", size, sign)

    fabs, sqrt, floor, ceil = _unary("fabs"), _unary("sqrt"), _unary("floor"), _unary("ceil")
    trunc_float, rint = _unary("trunc"), _unary("rint")

    def scaled(self, x: LlvmValue, whole: LlvmValue, n: LlvmValue) -> LlvmValue:
        if width(x) == SCALEF_LANES and isinstance(element_of(x.type), FloatType):
            return self.scaled_up(x, whole)
        from rlx_core.codegen.scalars.floats import scaled_in_two  # here, because programs from the cache emit nothing

        return scaled_in_two(self, x, n)

    def scaled_up(self, x: LlvmValue, n: LlvmValue) -> LlvmValue:
        """x·2^⌊n⌋ of sixteen lanes of f32, in one instruction."""
        name, mask = "llvm.x86.avx512.mask.scalef.ps.512", LlvmConstant(IntType(SCALEF_LANES), 0xFFFF)
        types: list[Type] = [x.type, x.type, x.type, mask.type, I32]
        return self.call(declare(self.module, name, x.type, types), [x, n, x, mask, LlvmConstant(I32, 4)])

    def library(self, name: str, x: LlvmValue) -> LlvmValue:
        """A call into the C library for each lane of doubles."""
        function = declare(self.module, name, DOUBLE, [DOUBLE])
        lanes = width(x)
        if lanes == 1:
            return self.call(function, [x])
        result: LlvmValue = LlvmConstant(VectorType(DOUBLE, lanes), Undefined)
        for lane in range(lanes):
            lane_index = LlvmConstant(I32, lane)
            result = self.insert_element(result, self.call(function, [self.extract_element(x, lane_index)]), lane_index)
        return result

    # ---------------------------------------------------------------------------------------- control

    def any_lane(self, condition: LlvmValue) -> LlvmValue:
        """Return whether a condition holds in some lane."""
        if width(condition) == 1:
            return condition
        name = f"llvm.vector.reduce.or.{suffix(condition.type)}"
        return self.call(declare(self.module, name, BIT, [condition.type]), [condition])

    def rarely(self, condition: LlvmValue, make: Callable[[], LlvmValue], usual: LlvmValue) -> LlvmValue:
        before = self.block
        then, after = self.append_basic_block("some"), self.append_basic_block("after")
        self.cbranch(self.any_lane(condition), then, after)
        self.position_at_end(then)
        mixed = self.select(condition, make(), usual)
        last = self.block
        self.branch(after)
        self.position_at_end(after)
        result = self.phi(usual.type)
        result.add_incoming(usual, before)
        result.add_incoming(mixed, last)
        return result

    def repeated(
        self,
        state: Sequence[LlvmValue],
        goes_on: Callable[[Sequence[LlvmValue]], LlvmValue],
        body: Callable[[Sequence[LlvmValue]], Sequence[LlvmValue]],
    ) -> Sequence[LlvmValue]:
        before, (head, inside, done) = self.block, map(self.append_basic_block, ("loop", "body", "done"))
        self.branch(head)
        self.position_at_end(head)
        phis = [self.phi(x.type) for x in state]
        for phi, x in zip(phis, state, strict=True):
            phi.add_incoming(x, before)
        self.cbranch(self.any_lane(goes_on(phis)), inside, done)
        self.position_at_end(inside)
        for phi, x in zip(phis, body(phis), strict=True):
            phi.add_incoming(x, self.block)
        self.branch(head)
        self.position_at_end(done)
        return phis

    def invoke(
        self, name: str, make: Callable[..., LlvmValue], args: Sequence[LlvmValue], *, is_inline: bool
    ) -> LlvmValue:
        type = args[0].type
        full = f"rlx.{name}.{suffix(type)}"
        function = self.module.globals.get(full)
        return self.call(function or self._made_function(full, make, [a.type for a in args], is_inline), args)

    def _made_function(
        self, name: str, make: Callable[..., LlvmValue], types: Sequence[Type], is_inline: bool
    ) -> Function:
        """The module's own copy of a function."""
        inside = new_function(self.module, FunctionType(types[0], types), name, is_internal=True)
        if is_inline:
            inside.function.attributes.add("alwaysinline")
        inside.ret(make(inside, *inside.function.args))
        return inside.function


def _element(dtype: DType) -> Type:
    if dtype is f32:
        return FloatType()
    return DOUBLE if dtype is f64 else BIT if dtype is bool_ else IntType(8 * dtype.itemsize)
