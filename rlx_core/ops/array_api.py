"""The functions users call, named as the Python Array API names them, and what they make of Python's operators.

Each is a thin front for an op or a composition of a few; the ops have the attributes, the rules and the meaning. Operands are
values, arrays or numbers; axes may be negative and are counted from the front before they reach an op. They are written in
`array_creation`, `array_elementwise`, `array_shapes`, `array_search`, `array_statistics` and `array_info`; here are all names.
"""

from __future__ import annotations

from rlx_core.ops.along_axis import put_along_axis
from rlx_core.ops.array_creation import arange, asarray, empty, empty_like, eye, from_dlpack, linspace, meshgrid
from rlx_core.ops.array_elementwise import ceil, clip, conj, conjugate, floor, imag, positive, real, round, trunc
from rlx_core.ops.array_info import array_namespace
from rlx_core.ops.array_search import (
    argmax,
    argmin,
    argsort,
    nonzero,
    searchsorted,
    sort,
    take,
    take_along_axis,
    top_k,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from rlx_core.ops.array_shapes import (
    broadcast_arrays,
    broadcast_to,
    diag,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    pad,
    permute_dims,
    repeat,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    tile,
    unstack,
)
from rlx_core.ops.array_statistics import (
    all,
    any,
    astype,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    logsumexp,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from rlx_core.ops.at import at
from rlx_core.ops.creation import dim_value, full, full_like, one_hot, ones, ones_like, zeros, zeros_like
from rlx_core.ops.device import to_device, value_device
from rlx_core.ops.getitem import getitem
from rlx_core.ops.movement import concat
from rlx_core.ops.operators import install
from rlx_core.ops.rearrange import diagonal, tril, triu
from rlx_core.ops.setitem import setitem

__all__ = [
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "asarray",
    "astype",
    "broadcast_arrays",
    "broadcast_to",
    "ceil",
    "clip",
    "concat",
    "conj",
    "conjugate",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diag",
    "diagonal",
    "diff",
    "empty",
    "empty_like",
    "expand_dims",
    "eye",
    "flip",
    "floor",
    "from_dlpack",
    "full",
    "full_like",
    "imag",
    "linspace",
    "logsumexp",
    "matrix_transpose",
    "max",
    "mean",
    "meshgrid",
    "min",
    "moveaxis",
    "nonzero",
    "one_hot",
    "ones",
    "ones_like",
    "pad",
    "permute_dims",
    "positive",
    "prod",
    "put_along_axis",
    "real",
    "repeat",
    "reshape",
    "roll",
    "round",
    "searchsorted",
    "sort",
    "split",
    "squeeze",
    "stack",
    "std",
    "sum",
    "take",
    "take_along_axis",
    "tile",
    "top_k",
    "tril",
    "triu",
    "trunc",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unstack",
    "var",
    "zeros",
    "zeros_like",
]

install(
    array_namespace=array_namespace,
    at=at,
    device=value_device,
    dim_value=dim_value,
    getitem=getitem,
    max=max,
    mean=mean,
    min=min,
    permute_dims=permute_dims,
    positive=positive,
    reshape=reshape,
    setitem=setitem,
    sum=sum,
    to_device=to_device,
)
