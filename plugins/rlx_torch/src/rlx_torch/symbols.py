"""Torch's symbolic sizes as rlx's: the same polynomials under the user's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rlx_core.errors import Fact, ShapeError
from rlx_core.importing.symbols import SymbolTable, foreign_size
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.types import TensorType
from rlx_torch.arrays import DTYPES


def size_of(size: Any, symbols: SymbolTable) -> Dim:
    """Return the dim for a size of torch: a number, a symbol, or a polynomial of them.

    Raises:
        ShapeError: It is another expression.
    """
    if isinstance(size, int):
        return size
    return _dim(size.node.expr, symbols)


def _dim(expr: Any, symbols: SymbolTable) -> Dim:
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        return symbols[str(expr)]
    if expr.is_Add:
        first, *remaining = (_dim(each, symbols) for each in expr.args)
        return sum(remaining, first)
    if expr.is_Mul and not any(each.is_Rational and not each.is_Integer for each in expr.args):
        return product([_dim(each, symbols) for each in expr.args])
    if expr.is_Pow and expr.args[1].is_Integer and expr.args[1] > 0:
        return product([_dim(expr.args[0], symbols)] * int(expr.args[1]))
    if type(expr).__name__ in ("FloorDiv", "CleanDiv"):
        numerator, denominator = (_dim(each, symbols) for each in expr.args)
        return numerator // denominator
    raise ShapeError(f"torch: {expr} is no size that rlx can write", Fact("found", type(expr).__name__))


def type_of(tensor: torch.Tensor, symbols: SymbolTable) -> TensorType:
    """The type of a tensor, whose sizes may be symbols."""
    return TensorType(DTYPES.dtype(tensor.dtype, "torch"), tuple(size_of(n, symbols) for n in tensor.shape))


def torch_size(size: Dim, sizes: Mapping[str, Any]) -> Any:
    """A dim as torch's size, from torch's sizes for its symbols."""
    return foreign_size(size, sizes, torch.sym_min)
