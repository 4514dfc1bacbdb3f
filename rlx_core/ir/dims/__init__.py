"""Sizes: static, symbolic, or integer expressions of symbols.

A `Dim` is an `int` or an `Expr`. An expression is kept as a canonical polynomial over symbols, quotients and minima, so
that equal sizes are equal objects to `==` and `hash`: `n*(s+1)` and `s*n + n` are one dim. A relation that cannot be
decided while sizes are unknown becomes a `SizeGuard`, which is checked when they are bound.
"""

from rlx_core.ir.dims.algebra import (
    BATCH,
    PAST_SEQ,
    ROWS,
    SEQ,
    Dim,
    Expr,
    exact_quotient,
    floor_quotient,
    free_symbols,
    is_static,
    product,
    smaller,
    symbol,
)
from rlx_core.ir.dims.atoms import SizeSymbol
from rlx_core.ir.dims.binding import DimBinding, RecordedSize, batch_past_seq, batch_seq, call_recorded, substitute
from rlx_core.ir.dims.guards import Relation, SizeGuard, collecting_guards, holds, record, require
from rlx_core.ir.dims.text import parse_dim, parse_dims

__all__ = [
    "BATCH",
    "PAST_SEQ",
    "ROWS",
    "SEQ",
    "Dim",
    "DimBinding",
    "Expr",
    "RecordedSize",
    "Relation",
    "SizeGuard",
    "SizeSymbol",
    "batch_past_seq",
    "batch_seq",
    "call_recorded",
    "collecting_guards",
    "exact_quotient",
    "floor_quotient",
    "free_symbols",
    "holds",
    "is_static",
    "parse_dim",
    "parse_dims",
    "product",
    "record",
    "require",
    "smaller",
    "substitute",
    "symbol",
]
