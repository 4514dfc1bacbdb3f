"""Properties of matrices that ops refuse, detected when the program runs.

These are raised by the references and by the kernels alike, as NumPy does and unlike systems that return NaN: a NaN propagates
through a training run and is noticed only when its matrix can no longer be identified.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import frozen

from rlx_core.errors import Fact, RlxError


class LinearAlgebraError(RlxError, np.linalg.LinAlgError):
    """A matrix does not have a property that an operation needs; subclasses are specific.

    It is also NumPy's `LinAlgError`, so code that catches that one works unchanged.

    >>> from rlx_custom_ops import inverse
    >>> try:
    ...     inverse(np.zeros((2, 2)))
    ... except np.linalg.LinAlgError as error:
    ...     type(error).__name__
    'SingularMatrixError'
    """


class NotPositiveDefiniteError(LinearAlgebraError):
    """A Cholesky factor was asked of a matrix that has none.

    This one has an eigenvalue of -1:

    >>> from rlx_custom_ops import cholesky
    >>> cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))
    Traceback (most recent call last):
        ...
    NotPositiveDefiniteError: cholesky: the matrix is not positive definite: ...

    >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]])

    A covariance that is positive definite on paper may miss it by rounding: add a
    small multiple of the identity.
    """


class SingularMatrixError(LinearAlgebraError):
    """A system was to be solved whose matrix has no inverse.

    The second row of this one is twice the first:

    >>> from rlx_custom_ops import lstsq, solve
    >>> a, b = np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([1.0, 1.0])
    >>> solve(a, b)
    Traceback (most recent call last):
        ...
    SingularMatrixError: solve: the matrix is singular: a pivot is exactly 0, ...

    The shortest of the vectors that come closest always exists:

    >>> np.round(lstsq(a, b), 6)
    array([0.12, 0.24])

    Only matrices that are singular to the last bit are refused; nearly singular
    ones give large numbers. Derivatives solve systems too: `slogdet` of a singular
    matrix is (0, -inf), and its gradient raises this.
    """


class NoConvergenceError(LinearAlgebraError):
    """LAPACK's iteration for eigenvalues or singular values did not end; this is rare, and depends on the matrix alone.

    Adding a perturbation of the size of rounding (1e-15 times the norm in float64)
    usually mends it.
    """


class NotConvergedError(LinearAlgebraError):
    """An iterative solver ended before its residual reached the requested tolerance.

    Two iterations are too few for this matrix without a preconditioner:

    >>> from rlx_custom_ops.sparse import Csr, cg
    >>> a = Csr.from_dense(np.diag([1.0, 2.0, 50.0, 1000.0]))
    >>> cg(a, np.ones(4), maxiter=2)
    Traceback (most recent call last):
        ...
    NotConvergedError: sparse.solve: cg for the matrix did not converge: ...

    >>> cg(a, np.ones(4), maxiter=2, preconditioner="jacobi")
    Array([1.   , 0.5  , 0.02 , 0.001])

    Args:
        residual: The norm of b - a x at the end.
    """

    def __init__(self, message: str, *facts: Fact, hint: str | None = None, residual: float = np.nan) -> None:
        super().__init__(message, *facts, hint=hint)
        self.residual = residual


BATCH_INDEX = "batch index"


def which(index: Sequence[object]) -> str:
    """The matrix an error is about, in words."""
    return f"the matrix at batch index {listed(index)}" if index else "the matrix"


def listed(index: Sequence[object]) -> str:
    return f"[{', '.join(map(str, index))}]"


@frozen
class MatrixRefusal:
    """The error of an op for a matrix that it does not accept.

    Native code reports where and what it met as a number, so both may be fields of a format in place of numbers.

    Attributes:
        says: Description of the matrix, with `{found}` for the offending value.
    """

    error: type[LinearAlgebraError]
    op: str
    says: str
    hint: str | None = None

    def message(self, index: Sequence[object], value: object) -> str:
        return f"{self.op}: {which(index)} is {self.says.format(found=value)}"

    def __call__(self, index: tuple[int, ...], value: int) -> LinearAlgebraError:
        """The error for the matrix at a batch index."""
        return self.error(self.message(index, value), Fact(BATCH_INDEX, listed(index)), hint=self.hint)


def no_minor(op: str, size: int) -> MatrixRefusal:
    """The refusal of a matrix for the order of its first leading minor that is not positive."""
    says = f"not positive definite: its leading minor of order {{found}} (of {size}) is not positive"
    return MatrixRefusal(NotPositiveDefiniteError, op, says)


def no_pivot(op: str, size: int) -> MatrixRefusal:
    """The refusal of a matrix with a pivot of exactly 0, for its numerical rank."""
    says = f"singular: a pivot is exactly 0, the numerical rank is {{found}} of {size}"
    return MatrixRefusal(SingularMatrixError, op, says, hint="`lstsq` solves systems of any rank")


def no_divisor(op: str, size: int) -> MatrixRefusal:
    """The refusal of a triangular matrix without an inverse, for the first row with a 0 on the diagonal."""
    return MatrixRefusal(
        SingularMatrixError, op, f"singular: element {{found}} of its diagonal (of {size}) is exactly 0"
    )


def singular(op: str, index: tuple[int, ...], a: np.ndarray) -> LinearAlgebraError:
    """The error for a pivot of exactly 0 in `a`."""
    return no_pivot(op, a.shape[-1])(index, int(np.linalg.matrix_rank(a)))


def no_convergence(op: str, index: tuple[int, ...]) -> NoConvergenceError:
    """The error for an iteration that did not end."""
    return NoConvergenceError(
        f"{op}: the iteration for {which(index)} did not converge", Fact(BATCH_INDEX, listed(index))
    )
