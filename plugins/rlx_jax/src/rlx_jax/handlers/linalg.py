"""Factorisations and Fourier transforms, by rlx's linear algebra (package rlx-custom-ops) and `rlx.fft`."""

from __future__ import annotations

from typing import Any, cast

import rlx_core as rlx
from rlx_core.importing.walk import refuse
from rlx_core.ops.array_linalg import factorisation
from rlx_jax.walk import Equation, handles, rows

rows(
    {
        "cholesky": lambda equation, a: rlx.linalg.cholesky(a),
        "lu": lambda equation, a: list(cast(Any, factorisation("lu"))()(a)),
    }
)


@handles("eigh")
def eigh(equation: Equation, a: Any) -> list[Any]:
    """Vectors, then values, as JAX has them."""
    values, vectors = rlx.linalg.eigh(a)
    return [vectors, values]


@handles("eig")
def eig(equation: Equation, a: Any) -> list[Any]:
    """Eigenvalues in rlx's order, which JAX does not specify; then the left and the right eigenvectors, if requested."""
    values, right = rlx.linalg.eig(a)
    results = [values]
    if equation["compute_left_eigenvectors"]:
        left = rlx.conj(rlx.matrix_transpose(rlx.linalg.inv(right)))
        results.append(left / rlx.astype(rlx.linalg.vector_norm(left, axis=-2, keepdims=True), left.dtype))
    if equation["compute_right_eigenvectors"]:
        results.append(right)
    return results


@handles("svd")
def svd(equation: Equation, a: Any) -> list[Any]:
    if not equation["compute_uv"]:
        return [rlx.linalg.svdvals(a)]
    u, s, vh = rlx.linalg.svd(a, full_matrices=equation["full_matrices"])
    return [s, u, vh]


@handles("lu_pivots_to_permutation")
def lu_pivots_to_permutation(equation: Equation, pivots: Any) -> Any:
    """One swap after the other."""
    places = rlx.arange(equation["permutation_size"], dtype=rlx.i32)
    order = rlx.broadcast_to(places, (*pivots.shape[:-1], equation["permutation_size"]))

    def swapped(number: Any, order: Any) -> Any:
        here, other = places == number, places == rlx.take(pivots, rlx.reshape(number, (1,)), axis=-1)
        first, second = (rlx.sum(rlx.where(position, order, 0), axis=-1, keepdims=True) for position in (here, other))
        return rlx.astype(rlx.where(here, second, rlx.where(other, first, order)), rlx.i32)

    return rlx.fori_loop(0, pivots.shape[-1], swapped, order)


@handles("qr")
def qr(equation: Equation, a: Any) -> list[Any]:
    """With a diagonal of R that is not negative; LAPACK, and so JAX, leaves its signs open."""
    if equation["pivoting"]:
        refuse(subject="qr with pivoting")
    return list(rlx.linalg.qr(a, mode="complete" if equation["full_matrices"] else "reduced"))


@handles("triangular_solve")
def triangular_solve(equation: Equation, a: Any, b: Any) -> Any:
    """op(a) x = b, or x op(a) = b, which is opᵀ(a) xᵀ = bᵀ."""
    a = rlx.conj(a) if equation["conjugate_a"] else a
    is_left, op = equation["left_side"], cast(Any, factorisation("triangular_solve"))
    solve = op(
        lower=equation["lower"],
        operation="transpose" if equation["transpose_a"] is is_left else "none",
        unit_diagonal=equation["unit_diagonal"],
    )
    return solve(a, b) if is_left else rlx.matrix_transpose(solve(a, rlx.matrix_transpose(b)))


@handles("custom_linear_solve")
def custom_linear_solve(equation: Equation, *operands: Any) -> list[Any]:
    """Solve systems whose matrices are explicit: the operator is one product with the matrix.

    The systems are solved again with an op that has derivatives of every order. JAX's factors do not support derivatives; they
    are unused then and removed.

    Raises:
        OperandRefusal: The operator is another function, without an explicit matrix.
    """
    arguments = operands[: equation["const_lengths"].matvec]
    result = _matrix_of(equation["jaxprs"].matvec.jaxpr, len(arguments))
    if result is None:
        refuse(subject="custom_linear_solve with a function in place of a matrix")
    place, batch, contracted, along = result
    matrix, b = arguments[place], operands[-1]
    rows = next(axis for axis in range(len(matrix.shape)) if axis not in (*batch, contracted))
    transposed = rlx.permute_dims(matrix, (*batch, rows, contracted))
    others = [axis for axis in range(len(b.shape)) if axis >= len(batch) and axis != along]
    order = (*range(len(batch)), along, *others)
    columns = rlx.permute_dims(b, order)
    shape = columns.shape
    x = rlx.solve(transposed, rlx.reshape(columns, (*shape[: len(batch) + 1], -1)))
    return [rlx.permute_dims(rlx.reshape(x, shape), tuple(order.index(axis) for axis in range(len(order))))]


def _matrix_of(matvec: Any, consts: int) -> tuple[int, tuple[int, ...], int, int] | None:
    """Analyse a program that multiplies its last input by a matrix: return the matrix' position among the inputs, its batch
    axes and the summed axis, and that axis of the unknown. `None` if it does something else."""
    first, *remaining = matvec.eqns
    moves = all(
        each.primitive.name in ("transpose", "reduce_sum") and not each.params.get("axes") for each in remaining
    )
    if first.primitive.name != "dot_general" or not moves or len(matvec.invars) != consts + 1:
        return None
    summed, batches = first.params["dimension_numbers"]
    if first.invars[0] is matvec.invars[-1]:
        summed, batches, (unknown, matrix) = summed[::-1], batches[::-1], first.invars
    else:
        matrix, unknown = first.invars
    if unknown is not matvec.invars[-1] or matrix not in matvec.invars[:-1] or [len(axes) for axes in summed] != [1, 1]:
        return None
    # What was batched stands in front of the unknown; of a matrix that all share no axis is a batch's.
    if tuple(batches[1]) != tuple(range(len(batches[1]))) or matrix.aval.ndim != len(batches[0]) + 2:
        return None
    return matvec.invars.index(matrix), tuple(batches[0]), summed[0][0], summed[1][0]


@handles("tridiagonal_solve")
def tridiagonal_solve(equation: Equation, below: Any, middle: Any, above: Any, b: Any) -> Any:
    """Each row's unknown in terms of the next one's, down the rows; then the values, back up."""
    below, middle, above = (rlx.moveaxis(each, -1, 0)[..., None] for each in (below, middle, above))
    right = rlx.moveaxis(b, -2, 0)
    first = rlx.zeros_like(above[0]), rlx.zeros_like(right[0])

    def down(carry: Any, row: Any) -> Any:
        share, known = carry
        low, diagonal, high, right_side = row
        divisor = diagonal - low * share
        result = high / divisor, (right_side - low * known) / divisor
        return result, result

    _, (shares, knowns) = rlx.scan(down, first, (below, middle, above, right))

    def up(following: Any, row: Any) -> Any:
        share, known = row
        result = known - share * following
        return result, result

    _, x = rlx.scan(up, rlx.zeros_like(right[0]), (shares, knowns), reverse=True)
    return rlx.moveaxis(x, 0, -2)


@handles("fft")
def fft(equation: Equation, x: Any) -> Any:
    kind, lengths = equation["fft_type"], [equation.sizes.size(each) for each in equation["fft_lengths"]]
    names = {"FFT": "fftn", "IFFT": "ifftn", "RFFT": "rfftn", "IRFFT": "irfftn"}
    name = getattr(kind, "name", str(kind))
    if name not in names:
        refuse(subject=f"fft of kind {kind}")
    axes = tuple(range(-len(lengths), 0))
    return rlx.astype(getattr(rlx.fft, names[name])(x, s=lengths, axes=axes), equation.results[0].dtype, copy=False)
