"""The scalar ops for which a target has code: rows by op, and functions by op and dtype, registered once and explicitly.

A *row* is the code of an op for any dtype; a *function* is long code of one dtype, written once per module. An f32 function
without f32 code is computed in f64 if the target has such registers, and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.ir.dtypes import FLOATS, INTEGERS, DType, bool_, f32, f64
from rlx_core.ir.op import Op
from rlx_core.system.records import frozen

Code = Callable[[Assembler[Any], Any, "tuple[DType, ...]", "tuple[Any, ...]"], Any]
"""From an op, its operands' dtypes and their registers to the register of its result."""

Function = Callable[..., Any]
"""From an assembler and registers of one dtype to a register of that dtype."""

DTYPES = (bool_, *INTEGERS, *FLOATS)
"""Dtypes of scalar code; f16 and bf16 are f32 in registers."""


@frozen
class Row:
    """The code of an op.

    Attributes:
        code: Its code.
        dtypes: Dtypes of operands.
        reason: Returns why there is no code for some attributes of an op with registers of these dtypes, as "needs …" would
            continue.
    """

    code: Code
    dtypes: tuple[DType, ...] = DTYPES
    reason: Callable[[Any, tuple[DType, ...]], str | None] | None = None


@frozen(eq=False)
class ScalarTable:
    """The scalar functions of one target.

    An op without an entry has no kernel, and neither has a formula that contains it; `refusal` reports this before a program is
    planned. Composed ops have no entries: they arrive as their decomposition.

    Attributes:
        name: Name of the code in refusals.
        dtypes: Dtypes of the target's registers, and narrow floats in its memory.
        rows: Rows by op.
        functions: Functions by op and the dtype of their registers.
    """

    name: str
    dtypes: tuple[DType, ...]
    rows: Mapping[type[Op], Row]
    functions: Mapping[tuple[type[Op], DType], Function]
    _supported: dict[tuple[type[Op], int, int], tuple[DType, ...]] = field(factory=dict, init=False, repr=False)

    def dtypes_of(self, op: type[Op]) -> tuple[DType, ...]:
        """The dtypes of operands for which there is code; kept, because it is asked of every step of every kernel."""
        key = op, len(self.rows), len(self.functions)
        result = self._supported.get(key)
        if result is None:
            row = self.rows.get(op)
            declared = row.dtypes if row is not None else ()
            result = self._supported[key] = tuple(
                d for d in self.dtypes if d in declared or self.form(op, d) is not None
            )
        return result

    def form(self, op: type[Op], dtype: DType) -> DType | None:
        """Return the dtype in which the function of `op` on a `dtype` is computed; `None` without a function."""
        forms = (f32, f64) if dtype.accumulator is f32 else (dtype,)
        return next((form for form in forms if (op, form) in self.functions and form in self.dtypes), None)

    def refusal(self, op: Op, dtypes: Sequence[DType]) -> str | None:
        """Return why there is no code for `op` on operands of these dtypes, as "needs …" would continue; `None` if there is."""
        supported = self.dtypes_of(type(op))
        if not supported:
            return f"{self.name} code for {op.name.removeprefix('rlx.')}"
        wrong = sorted({d.name for d in dtypes if d not in supported})
        if wrong:
            return f"{self.name} code for {op.name.removeprefix('rlx.')} on {' '.join(wrong)}"
        row = self.rows.get(type(op))
        return None if row is None or row.reason is None else row.reason(op, self.dtypes)

    def apply(self, b: Assembler[V], op: Op, dtypes: Sequence[DType], args: Sequence[V]) -> V:
        """The result of `op` on registers.

        What f32 computes of narrow operands stays f32 until it is stored; only a cast to a narrow dtype rounds here.
        """
        accumulators = tuple(d.accumulator for d in dtypes)
        if accumulators and self.form(type(op), accumulators[0]) is not None:
            return self.call(b, type(op), accumulators[0], args)
        result: V = self.rows[type(op)].code(b, op, accumulators, tuple(args))
        return result

    def call(self, b: Assembler[V], op: type[Op], dtype: DType, args: Sequence[V]) -> V:
        """The function of `op` on registers of `dtype`."""
        form = self.form(op, dtype)
        assert form is not None, f"{op.name} has a form for {dtype}"
        return called(b, op.name.rpartition(".")[2], self.functions[op, form], dtype, form, args)


def called(b: Assembler[V], name: str, make: Function, dtype: DType, form: DType, args: Sequence[V]) -> V:
    """A function on registers of `dtype`, by its code for one at least as wide; code of f64 is too long to be inlined."""
    if form is dtype:
        return b.invoke(name, make, args, is_inline=form is f32)
    wide = [b.converted(a, dtype, form) for a in args]
    return b.converted(b.invoke(name, make, wide, is_inline=False), form, dtype)
