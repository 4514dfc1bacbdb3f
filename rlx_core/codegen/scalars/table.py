"""Which scalar ops a target has code for: rows by op, and functions by op and dtype, filled once and explicitly.

A *row* says what an op becomes whatever the dtype; a *function* is long code of one dtype, written once a module. An f32 function
that has no form of its own is computed in f64 where the target has such registers, and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.ir.dtypes import FLOATS, INTEGERS, DType, bool_, f32, f64
from rlx_core.ir.op import Op
from rlx_core.system.records import frozen

__all__ = ["DTYPES", "Code", "Function", "Row", "ScalarTable", "called"]

Code = Callable[[Assembler[Any], Any, "tuple[DType, ...]", "tuple[Any, ...]"], Any]
"""From an op, its operands' dtypes and their registers to the register of its result."""

Function = Callable[..., Any]
"""From an assembler and registers of one dtype to a register of that dtype."""

DTYPES = (bool_, *INTEGERS, *FLOATS)
"""What scalar code knows; f16 and bf16 are f32 in registers."""


@frozen
class Row:
    """The code of an op.

    Attributes:
        code: What it becomes.
        dtypes: Of operands.
        reason: Why there is no code for some attributes of an op where registers hold these dtypes, as "needs …" would continue.
    """

    code: Code
    dtypes: tuple[DType, ...] = DTYPES
    reason: Callable[[Any, tuple[DType, ...]], str | None] | None = None


@frozen(eq=False)
class ScalarTable:
    """What one target has code for.

    What is missing has no kernel, and neither has a formula that contains it; `refusal` says so before a program is planned.
    Composed ops are missing: they arrive as their decomposition.

    Attributes:
        name: What refusals call the code.
        dtypes: What the target's registers hold, and narrow floats that its memory does.
        rows: By op.
        functions: By op and the dtype of their registers.
    """

    name: str
    dtypes: tuple[DType, ...]
    rows: Mapping[type[Op], Row]
    functions: Mapping[tuple[type[Op], DType], Function]
    _held: dict[tuple[type[Op], int, int], tuple[DType, ...]] = field(factory=dict, init=False, repr=False)

    def dtypes_of(self, op: type[Op]) -> tuple[DType, ...]:
        """The dtypes of operands for which there is code; kept, because it is asked of every step of every kernel."""
        key = op, len(self.rows), len(self.functions)
        found = self._held.get(key)
        if found is None:
            row = self.rows.get(op)
            held = row.dtypes if row is not None else ()
            found = self._held[key] = tuple(d for d in self.dtypes if d in held or self.form(op, d) is not None)
        return found

    def form(self, op: type[Op], dtype: DType) -> DType | None:
        """The dtype in which the function of `op` on a `dtype` is computed; `None` if there is none."""
        forms = (f32, f64) if dtype.accumulator is f32 else (dtype,)
        return next((form for form in forms if (op, form) in self.functions and form in self.dtypes), None)

    def refusal(self, op: Op, dtypes: Sequence[DType]) -> str | None:
        """Why there is no code for `op` on operands of these dtypes, as "needs …" would continue; `None` if there is."""
        held = self.dtypes_of(type(op))
        if not held:
            return f"{self.name} code for {op.name.removeprefix('rlx.')}"
        wrong = sorted({d.name for d in dtypes if d not in held})
        if wrong:
            return f"{self.name} code for {op.name.removeprefix('rlx.')} on {' '.join(wrong)}"
        row = self.rows.get(type(op))
        return None if row is None or row.reason is None else row.reason(op, self.dtypes)

    def apply(self, b: Assembler[V], op: Op, dtypes: Sequence[DType], args: Sequence[V]) -> V:
        """The result of `op` on registers.

        What f32 computes of narrow operands stays f32 until it is stored; only a cast to a narrow dtype rounds here.
        """
        held = tuple(d.accumulator for d in dtypes)
        if held and self.form(type(op), held[0]) is not None:
            return self.call(b, type(op), held[0], args)
        result: V = self.rows[type(op)].code(b, op, held, tuple(args))
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
