"""The scalar ops of a GPU language: a function of the language where it promises enough, else the shared code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.standard import standard_table
from rlx_core.codegen.scalars.table import DTYPES, ScalarTable
from rlx_core.ir.dtypes import DType, f32
from rlx_core.ir.op import Op
from rlx_core.system.records import frozen
from rlx_gpu.codegen.languages import ACCURATE, Builtin, GpuDialect


@frozen(eq=False)
class LanguageTable(ScalarTable):
    """The shared table, with `builtins` of one language by the op's full name.

    A builtin is called if its guarantee is at least that of the shared code, and if there is no shared code in registers that
    the language has. Ops on f64 have shared code only: the guarantees of languages are for f32.
    """

    builtins: Mapping[str, Builtin]

    def builtin(self, op: type[Op], dtype: DType) -> Builtin | None:
        """The function of the language that an op on a dtype is printed as."""
        builtin = self.builtins.get(op.name)
        if builtin is None or dtype.accumulator is not f32:
            return None
        # An f32 function that shared code computes in f64 costs far more than a builtin of the language.
        return builtin if builtin.ulp <= ACCURATE or (op, f32) not in self.functions else None

    def dtypes_of(self, op: type[Op]) -> tuple[DType, ...]:
        known = super().dtypes_of(op)
        return tuple(d for d in self.dtypes if d in known or (d.is_float and self.builtin(op, d) is not None))

    def apply(self, b: Assembler[V], op: Op, dtypes: Sequence[DType], args: Sequence[V]) -> V:
        builtin = self.builtin(type(op), dtypes[0]) if dtypes else None
        if builtin is None:
            return super().apply(b, op, dtypes, args)
        text: Any = b  # the functions of a language are called in its text, which is the only assembler of this table
        return text.call(builtin.text, b.dtype_of(args[0]), *args)


@lru_cache(maxsize=16)
def scalars_of(language: GpuDialect) -> LanguageTable:
    """Return the scalar functions of a language."""
    shared = standard_table(language.name, tuple(d for d in DTYPES if d in language.dtypes))
    return LanguageTable(shared.name, shared.dtypes, shared.rows, shared.functions, language.builtins)
