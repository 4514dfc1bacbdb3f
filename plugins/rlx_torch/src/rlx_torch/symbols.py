"""Torch's symbolic sizes as rlx's: the same polynomials under the user's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

import rlx_core as rlx
from rlx_core.errors import Fact, ShapeError
from rlx_core.ir.dims import Dim, SizeSymbol, product
from rlx_core.ir.types import TensorType
from rlx_torch.arrays import dtype_of

__all__ = ["size_of", "torch_size", "type_of"]


def size_of(size: Any, names: Mapping[str, str]) -> Dim:
    """Return the dim for a size of torch: a number, a symbol, or a polynomial of them.

    Raises:
        ShapeError: It is another expression.
    """
    if isinstance(size, int):
        return size
    return _dim(size.node.expr, names)


def _dim(expr: Any, names: Mapping[str, str]) -> Dim:
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        return rlx.symbol(names.get(str(expr), str(expr)))
    if expr.is_Add:
        first, *rest = (_dim(each, names) for each in expr.args)
        return sum(rest, first)
    if expr.is_Mul and not any(each.is_Rational and not each.is_Integer for each in expr.args):
        return product([_dim(each, names) for each in expr.args])
    if expr.is_Pow and expr.args[1].is_Integer and expr.args[1] > 0:
        return product([_dim(expr.args[0], names)] * int(expr.args[1]))
    if type(expr).__name__ in ("FloorDiv", "CleanDiv"):
        numerator, denominator = (_dim(each, names) for each in expr.args)
        return numerator // denominator
    raise ShapeError(f"torch: {expr} is no size that rlx can write", Fact("found", type(expr).__name__))


def type_of(tensor: torch.Tensor, names: Mapping[str, str]) -> TensorType:
    """The type of a tensor, whose sizes may be symbols."""
    return TensorType(dtype_of(tensor.dtype), tuple(size_of(n, names) for n in tensor.shape))


def torch_size(size: Dim, known: Mapping[str, Any]) -> Any:
    """A dim as torch's size, from torch's sizes for its symbols."""
    if isinstance(size, int):
        return size
    whole: Any = 0
    for monomial, factor in size.terms:
        part: Any = factor
        for atom, power in monomial:
            part = part * _atom(atom, known) ** power
        whole = whole + part
    return whole


def _atom(atom: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(atom, SizeSymbol):
        return known[atom.name]
    left, right = torch_size(atom.left, known), torch_size(atom.right, known)
    return torch.sym_min(left, right) if atom.kind == "min" else left // right
