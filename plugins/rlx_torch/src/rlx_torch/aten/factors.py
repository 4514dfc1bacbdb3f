"""LU factors as torch keeps them: packed in one matrix, and pivots that count from 1; and the exponential of matrices."""

from __future__ import annotations

from typing import Any, cast

import rlx_core as rlx
from rlx_core import linalg
from rlx_core.ir.dims import holds
from rlx_core.ir.types import broadcast_shapes
from rlx_core.ops.array_linalg import factorisation
from rlx_torch.aten.algebra import no_fault, solve
from rlx_torch.aten.context import here, refuse
from rlx_torch.aten.table import aten, rows

rows(
    {
        "linalg_matrix_exp matrix_exp": lambda x: cast(Any, factorisation("expm"))()(x),
        "_linalg_det": lambda x: (linalg.det(x), *_factored(x)),
        "_linalg_slogdet": lambda x: (*linalg.slogdet(x), *_factored(x)),
    }
)


def _lu(x: Any, pivot: bool = True) -> tuple[Any, Any, Any]:
    """The factors in one matrix, the pivots and the order of the rows, all counted from 0."""
    if not pivot:
        refuse("factors with pivoting")
    if not holds("==", x.shape[-1], x.shape[-2]):
        refuse("factors of square matrices")
    packed, pivots, order = cast(Any, factorisation("lu"))()(x)
    return packed, pivots, order


def _factored(x: Any) -> tuple[Any, Any]:
    """Return the factors that torch saves of an operand for the backward pass: of its transpose if it is stored by rows."""
    values = here.get().node.args[0].meta["val"]
    is_turned = values.is_contiguous() and not x.dtype.is_complex
    packed, pivots, _ = _lu(rlx.matrix_transpose(x) if is_turned else x)
    return packed, pivots + 1


def _order(pivots: Any) -> Any:
    """The order of the rows after one swap after the other; pivots count from 1."""
    size = pivots.shape[-1]
    places = rlx.arange(size, dtype=rlx.i32)

    def swapped(number: Any, order: Any) -> Any:
        other = rlx.take(pivots, rlx.reshape(number, (1,)), axis=-1) - 1
        first, second = (
            rlx.sum(rlx.where(position, order, 0), axis=-1, keepdims=True)
            for position in (places == number, places == other)
        )
        return rlx.astype(rlx.where(places == number, second, rlx.where(places == other, first, order)), rlx.i32)

    return rlx.fori_loop(0, size, swapped, rlx.broadcast_to(places, pivots.shape))


def _permuting(order: Any, dtype: Any) -> Any:
    """P of `a = P l u`: row `order[i]` of `a` is row i of `l u`."""
    places = rlx.arange(order.shape[-1], dtype=rlx.i32)
    return rlx.astype(rlx.expand_dims(places, axis=-1) == rlx.expand_dims(order, axis=-2), dtype)


def _parts(packed: Any) -> tuple[Any, Any]:
    return rlx.tril(packed, k=-1) + rlx.eye(packed.shape[-1], dtype=packed.dtype), rlx.triu(packed)


@aten("linalg_lu_factor_ex")
def lu_factor_ex(x: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    packed, pivots, _ = _lu(x, pivot)
    return packed, pivots + 1, no_fault(x)


@aten("linalg_lu")
def lu(x: Any, *, pivot: bool = True) -> Any:
    packed, _, order = _lu(x, pivot)
    return (_permuting(order, x.dtype), *_parts(packed))


@aten("lu_unpack")
def lu_unpack(packed: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    if not holds("==", packed.shape[-1], packed.shape[-2]):
        refuse("factors of square matrices")
    empty = rlx.zeros((0,), dtype=packed.dtype)
    lower, upper = _parts(packed) if unpack_data else (empty, empty)
    return (_permuting(_order(pivots), packed.dtype) if unpack_pivots else empty), lower, upper


@aten("linalg_lu_solve")
def lu_solve(packed: Any, pivots: Any, b: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    """x of `a x = b`, of `aᴴ x = b`, or of `x a = b`, from the factors of `a`."""
    if not left:
        transposed = lu_solve(packed, pivots, rlx.conj(rlx.matrix_transpose(b)), adjoint=not adjoint)
        return rlx.conj(rlx.matrix_transpose(transposed))
    triangular = cast(Any, factorisation("triangular_solve"))
    permuting = _permuting(_order(pivots), packed.dtype)
    b = rlx.astype(b, packed.dtype, copy=False)
    rows = broadcast_shapes(packed.shape[:-2], b.shape[:-2])
    packed = rlx.broadcast_to(packed, (*rows, *packed.shape[-2:]))
    b = rlx.broadcast_to(b, (*rows, *b.shape[-2:]))
    if adjoint:
        first = triangular(lower=False, operation="adjoint")(packed, b)
        return rlx.matmul(permuting, triangular(lower=True, operation="adjoint", unit_diagonal=True)(packed, first))
    first = triangular(lower=True, unit_diagonal=True)(packed, rlx.matmul(rlx.matrix_transpose(permuting), b))
    return triangular(lower=False)(packed, first)


@aten("_linalg_solve_ex")
def solve_ex(a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """The solution, and the factors of `a` as it is: so the derivative reads them when it is traced."""
    packed, pivots, _ = _lu(a)
    return solve(a, b, left=left), packed, pivots + 1, no_fault(a)
