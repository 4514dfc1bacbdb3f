"""Grouped matrix products, with one matrix per group of rows: mixtures of experts, as torch and transformers write them."""

from __future__ import annotations

from typing import Any

import rlx_core as rlx
from rlx_torch.aten.context import refuse
from rlx_torch.aten.elementwise import convert
from rlx_torch.aten.table import aten


@aten("_grouped_mm")
def grouped_mm(x: Any, matrices: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """f[s, k] · f[groups, k, n] -> f[s, n], where `offs` are the ends of the groups in order."""
    if offs is None and x.ndim == matrices.ndim == 3:
        result = rlx.matmul(x, matrices)
    elif offs is not None and (x.ndim, matrices.ndim) == (2, 3):
        result = products_of_groups(x, matrices, offs)
    else:
        refuse("a product for each group: groups of rows times a matrix for each are the ones that are known")
    result = result if bias is None else result + bias
    return result if out_dtype is None else convert(result, out_dtype)


@aten("transformers::grouped_mm_fallback")
def products_of_groups(input: Any, weight: Any, offs: Any) -> Any:
    """Rows behind the last group are zeros."""
    group = rlx.searchsorted(offs, rlx.arange(input.shape[0], dtype=offs.dtype), side="right")
    groups = weight.shape[0]
    result = rlx.grouped_matmul(input, weight, rlx.minimum(group, groups - 1))
    return rlx.where((group < groups)[:, None], result, 0)


@aten("transformers::grouped_mm_fallback_backward")
def cotangents_of_groups(input: Any, weight: Any, offs: Any, grad_output: Any) -> list[Any]:
    _, pull = rlx.vjp(lambda x, w: products_of_groups(x, w, offs), input, weight)
    return list(pull(grad_output))
