"""Products with weights, blocks of them, and rows of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import DType, f32
from rlx_core.ir.dtypes import dtype as as_dtype
from rlx_core.ops import blocks
from rlx_core.ops.comparison import equal
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import iota
from rlx_core.ops.indexing import gather
from rlx_core.ops.linalg import operand
from rlx_core.ops.structural import reshape

if TYPE_CHECKING:
    from rlx_core.ir.apply import OpFunction
    from rlx_core.ir.op import Op
    from rlx_core.typing import Array, ArrayLike

__all__ = ["embedding", "linear", "one_hot", "residual_rms_norm", "shared_linear_pair", "swiglu"]


def linear(
    x: ArrayLike,
    w: ArrayLike,
    b: ArrayLike | None = None,
    *,
    activation: Op | OpFunction[Any] | str | None = None,
    name: str | None = None,
) -> Array:
    """`activation(x @ w + b)`, with `w` as `[in, out]`; records the linear block.

    Args:
        x: `[.., in]`.
        w: `[in, out]`; pass `w.T` for a weight that is stored the other way.
        b: `[out]`, or none.
        activation: An op of one operand, its function or its name ("gelu").
        name: A name for the block, which every op it becomes inherits.

    >>> linear([[1.0, 2.0]], [[3.0], [4.0]]).tolist()
    [[11.0]]
    """
    operands = (x, w) if b is None else (x, w, b)
    return blocks.linear(*operands, activation=activation, has_bias=b is not None, name=name)


def shared_linear_pair(x: ArrayLike, w1: ArrayLike, w2: ArrayLike) -> tuple[Array, Array]:
    """`x @ w1` and `x @ w2` as one product with both weights side by side."""
    return blocks.shared_linear_pair(x, w1, w2, slot=0), blocks.shared_linear_pair(x, w1, w2, slot=1)


def swiglu(x: ArrayLike, up_w: ArrayLike, gate_w: ArrayLike, down_w: ArrayLike, *, name: str | None = None) -> Array:
    """The gated feed-forward layer `(silu(x @ gate_w) * (x @ up_w)) @ down_w`; records its block."""
    return blocks.swiglu(x, up_w, gate_w, down_w, name=name)


def residual_rms_norm(
    x: ArrayLike, residual: ArrayLike, gamma: ArrayLike, beta: ArrayLike | None = None, *, eps: float = 1e-6
) -> Array:
    """`rms_norm(x + residual, gamma, beta)`; records its block."""
    operands = (x, residual, gamma) if beta is None else (x, residual, gamma, beta)
    return blocks.residual_rms_norm(*operands, eps=eps)


def embedding(ids: ArrayLike, table: ArrayLike) -> Array:
    """The rows of `table` that integer `ids` name: `[.., features]`.

    Raises:
        DtypeError: The ids are not integers.
        IndexRangeError: When it runs: an id is outside the table.
    """
    return gather(table, ids, axis=0)


def one_hot(ids: ArrayLike, depth: Dim, *, dtype: DType | str = f32) -> Array:
    """1 at the place that each id names and 0 elsewhere, along a new last axis; an id outside is a row of zeros."""
    labels = operand(ids)
    column = reshape(labels, (*labels.shape, 1))
    return cast(equal(column, iota(axis=0, shape=(depth,))), to=as_dtype(dtype))
