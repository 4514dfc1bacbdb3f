"""The interface of scalar code: the common instructions of LLVM, the C-like languages of GPUs and NumPy.

Scalar code is straight-line: values in, values out, every choice a `select`. It is independent of the number of lanes of a
register; an assembler may compute sixteen numbers or one with the same calls. The names are LLVM's. Integers are signless, as
in LLVM: the instruction determines the sign. f16 and bf16 are f32 in registers, and `bool` is one bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar

from rlx_core.ir.dtypes import DType

Relation = Literal["==", "!=", "<", "<=", ">", ">="]

V = TypeVar("V")
"""A value of the language that code is built in."""


class Assembler(Protocol[V]):
    """Builds scalar code in one language; `V` is a value of it: a register, an expression's name, an array."""

    @property
    def fuses(self) -> bool:
        """Whether `fma` rounds once. A language that leaves that open may round the product as well."""

    # ---------------------------------------------------------------------------------------- types

    def dtype_of(self, x: V) -> DType:
        """The dtype of a register: `bool_`, a float, or the signed integer of that width."""

    def constant(self, like: V, number: bool | int | float) -> V:
        """A number of the type of `like`, rounded to it; integers modulo their width."""

    def number(self, dtype: DType, number: bool | int | float, beside: V) -> V:
        """A number of a dtype of registers, with the lanes of `beside`."""

    def bits(self, x: V) -> V:
        """A float's bits as an integer."""

    def from_bits(self, x: V, like: V) -> V:
        """The float of the type of `like` that has these bits."""

    def converted(self, x: V, source: DType, to: DType) -> V:
        """`x`, of dtype `source`, as a `to`, between dtypes of registers; `to` is no `bool`.

        Floats become integers truncated toward zero and saturated, NaN 0; integers wrap; conversions to a float round to
        nearest. `conversion.converted` implements the rest of the op `Cast` in terms of this.
        """

    # --------------------------------------------------------------------------------------- floats

    def fadd(self, x: V, y: V) -> V: ...
    def fsub(self, x: V, y: V) -> V: ...
    def fmul(self, x: V, y: V) -> V: ...
    def fdiv(self, x: V, y: V) -> V: ...
    def frem(self, x: V, y: V) -> V:
        """The exact remainder with the sign of `x`, C's `fmod`."""

    def fneg(self, x: V) -> V: ...
    def fma(self, x: V, y: V, z: V) -> V:
        """x·y + z with one rounding, where the language `fuses`."""

    def fabs(self, x: V) -> V: ...
    def copysign(self, size: V, sign: V) -> V:
        """`size` with the sign of `sign`."""

    def sqrt(self, x: V) -> V:
        """Correctly rounded."""

    def floor(self, x: V) -> V: ...
    def ceil(self, x: V) -> V: ...
    def trunc_float(self, x: V) -> V: ...
    def rint(self, x: V) -> V:
        """The nearest whole number, ties to even."""

    def scaled(self, x: V, whole: V, n: V) -> V:
        """x·2^n for an x near 1 and a power that may be too large or too small for a float, rounded once where it is subnormal.

        n is given as a float and as an integer. `floats.scaled_in_two` does it with what every language has.
        """

    def library(self, name: Literal["sin", "cos", "tan"], x: V) -> V:
        """The language's own function of f64, for arguments so large that nothing here reaches them."""

    def fcmp_ordered(self, relation: Relation, x: V, y: V) -> V:
        """False where one is NaN."""

    def fcmp_unordered(self, relation: Relation | Literal["uno"], x: V, y: V) -> V:
        """True where one is NaN; `uno` asks only that."""

    # ------------------------------------------------------------------------------------- integers

    def add(self, x: V, y: V) -> V: ...
    def sub(self, x: V, y: V) -> V: ...
    def mul(self, x: V, y: V) -> V: ...
    def neg(self, x: V) -> V: ...
    def sdiv(self, x: V, y: V) -> V:
        """Truncated toward zero; a divisor is neither 0 nor, of the smallest number, -1. So it is with `srem`."""

    def udiv(self, x: V, y: V) -> V: ...
    def srem(self, x: V, y: V) -> V: ...
    def urem(self, x: V, y: V) -> V: ...
    def and_(self, x: V, y: V) -> V:
        """Bitwise, on integers or `bool`; so are the other three."""

    def or_(self, x: V, y: V) -> V: ...
    def xor(self, x: V, y: V) -> V: ...
    def not_(self, x: V) -> V: ...
    def shl(self, x: V, count: V) -> V:
        """Shift by less than the width; so do the other shifts."""

    def lshr(self, x: V, count: V) -> V: ...
    def ashr(self, x: V, count: V) -> V: ...
    def icmp_signed(self, relation: Relation, x: V, y: V) -> V: ...
    def icmp_unsigned(self, relation: Relation, x: V, y: V) -> V: ...

    # -------------------------------------------------------------------------------------- control

    def select(self, condition: V, yes: V, no: V) -> V: ...

    def rarely(self, condition: V, make: Callable[[], V], usual: V) -> V:
        """`make()` where a condition holds, `usual` elsewhere; the code of `make` is skipped where it holds nowhere."""

    def repeated(
        self,
        state: Sequence[V],
        goes_on: Callable[[Sequence[V]], V],
        body: Callable[[Sequence[V]], Sequence[V]],
    ) -> Sequence[V]:
        """`state` after `body` as often as `goes_on` holds in some lane; a lane that is done must not change any more."""

    def invoke(self, name: str, make: Callable[..., V], args: Sequence[V], *, is_inline: bool) -> V:
        """A call of a function of values of one type, whose result has that type too; it is written once per module and type.

        Args:
            name: Unique name of the computation; the assembler adds the type.
            make: Its body: `make(assembler, *parameters)`.
            args: The arguments of the call.
            is_inline: Whether it is short enough to be inlined.
        """
