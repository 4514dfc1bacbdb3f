"""All target-independent scalar code, and tables of it."""

from __future__ import annotations

from collections.abc import Mapping

from rlx_core.codegen.scalars import (
    arithmetic,
    circular,
    comparison,
    conversion,
    error,
    exponential,
    gamma,
    grid,
    inverse_error,
    inverses,
    narrow_circular,
    narrow_exponential,
    philox,
    powers,
    quotients,
    wide_circular,
    wide_error,
    wide_exponential,
)
from rlx_core.codegen.scalars.idioms import gelu_slope
from rlx_core.codegen.scalars.table import DTYPES, Function, Row, ScalarTable
from rlx_core.ir.dtypes import DType, f64
from rlx_core.ir.op import Op
from rlx_core.ops import activation

ROWS: Mapping[type[Op], Row] = {
    **arithmetic.ROWS,
    **comparison.ROWS,
    **conversion.ROWS,
    **quotients.ROWS,
    **grid.ROWS,
    **philox.ROWS,
    **gamma.ROWS,
}

SINGLE: Mapping[tuple[type[Op], DType], Function] = {
    **exponential.FUNCTIONS,
    **error.FUNCTIONS,
    **{(op, form): make for (op, form), make in inverse_error.FUNCTIONS.items() if form is not f64},
}
"""Functions of f32 that use only f32 registers. Other functions are in `DOUBLE`, or in `WITHOUT_DOUBLES`."""

WITHOUT_DOUBLES: Mapping[tuple[type[Op], DType], Function] = {
    **narrow_circular.FUNCTIONS,
    **narrow_exponential.FUNCTIONS,
    **inverses.SINGLE,
    **powers.SINGLE,
    **gamma.SINGLE,
}
"""Functions of f32 for a target without f64, where those of `DOUBLE` would be quicker."""

DOUBLE: Mapping[tuple[type[Op], DType], Function] = {
    **circular.FUNCTIONS,
    **wide_circular.FUNCTIONS,
    **wide_error.FUNCTIONS,
    **wide_exponential.FUNCTIONS,
    **gamma.DOUBLE,
    **powers.DOUBLE,
    **inverses.DOUBLE,
    **{(op, form): make for (op, form), make in inverse_error.FUNCTIONS.items() if form is f64},
}
"""Functions that compute in registers of f64, those of f32 among them that do."""

IDIOMS: tuple[type[Op], ...] = (activation.gelu.op, gelu_slope.op)
"""Composed functions with dedicated code in f32, used where `idioms.recognised` matches their formula."""


def standard_table(name: str, dtypes: tuple[DType, ...] = DTYPES) -> ScalarTable:
    """Return the table of a target whose registers and memory support `dtypes`; without f64 only functions computed in f32."""
    if f64 in dtypes:
        return ScalarTable(name, dtypes, ROWS, {**SINGLE, **DOUBLE})
    return ScalarTable(name, dtypes, {**ROWS, **gamma.SINGLE_ROWS}, {**SINGLE, **WITHOUT_DOUBLES})
