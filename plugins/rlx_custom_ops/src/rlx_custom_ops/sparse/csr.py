"""The sparse matrix that programs take and return: elements that are data, at places that are part of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
from optree.registry import __GLOBAL_NAMESPACE as EVERYWHERE  # rlx flattens the types of the global namespace

import rlx_core as rlx
from rlx_core.errors import ShapeError
from rlx_core.ops import Value, scatter_add
from rlx_custom_ops.sparse.pattern import Pattern

__rlx_library__ = True


class Csr:
    """A sparse matrix by compressed rows, as `scipy.sparse.csr_array` has it: a pytree whose only leaf is `data`.

    As an argument of `rlx.jit`, `rlx.grad` or `rlx.vmap` its elements are the data, and the gradient is a matrix of the same
    pattern. Another pattern requires another compilation.

    Args:
        data: The elements, row after row: [e], an array or a value.
        indices: Their columns, ascending in each row: [e].
        indptr: Index of each row's first element, and the end of the last row: [m + 1].
        shape: Rows and columns.

    Raises:
        ShapeError, IndexRangeError: They do not belong to such a matrix.

    >>> a = Csr(np.array([2.0, 1.0, 3.0]), [0, 1, 1], [0, 2, 3], shape=(2, 2))
    >>> a @ np.array([1.0, 10.0])
    Array([12., 30.])
    >>> (a @ a.T).todense()
    Array([[5., 3.],
           [3., 9.]])
    """

    __slots__ = ("data", "pattern")
    __array_ufunc__ = None  # x @ a asks a, instead of taking it for an array of objects

    data: Any
    pattern: Pattern

    def __init__(self, data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> None:
        self.pattern = Pattern(indices, indptr, shape)
        self.data = data if isinstance(data, Value) else np.asarray(data)
        if tuple(self.data.shape) != (self.pattern.size,):
            raise ShapeError(f"Csr: data must be [{self.pattern.size}], not {list(self.data.shape)}")

    @classmethod
    def of(cls, data: Any, pattern: Pattern) -> Csr:
        """A matrix of a known pattern. The data are taken as they are: pytrees put other things there than arrays."""
        result = object.__new__(cls)
        result.data, result.pattern = data, pattern
        return result

    @classmethod
    def from_coo(cls, data: Any, rows: Any, columns: Any, shape: tuple[int, int]) -> Csr:
        """Elements at places in any order; those of one place are added up."""
        rows, columns = np.asarray(rows), np.asarray(columns)
        if not np.shape(rows) == np.shape(columns) == tuple(data.shape) or rows.ndim != 1:
            raise ShapeError(
                f"Csr.from_coo: data, rows and columns must have one length, "
                f"not {list(data.shape)}, {list(rows.shape)} and {list(columns.shape)}"
            )
        pattern, which = Pattern.at(rows, columns, shape)
        return cls.of(_added(data, which, pattern), pattern)

    @classmethod
    def from_dense(cls, x: Any, pattern: Pattern | None = None) -> Csr:
        """The elements of an array that are not 0; or those of a pattern, which also works on values.

        Raises:
            ShapeError: `x` is no matrix, or not of the pattern's shape.
        """
        if pattern is None:
            if isinstance(x, Value) or np.ndim(x) != 2:
                raise ShapeError("Csr.from_dense: x must be an array with 2 axes; a value needs a pattern")
            rows, columns = np.nonzero(x)
            pattern, _ = Pattern.at(rows, columns, x.shape)
        if tuple(x.shape) != pattern.shape:
            raise ShapeError(f"Csr.from_dense: x must be {list(pattern.shape)}, not {list(x.shape)}")
        m, n = pattern.shape
        places = pattern.rows.astype(np.int64) * n + pattern.columns
        return cls.of(rlx.take(rlx.reshape(x, (m * n,)), places, axis=0), pattern)

    @classmethod
    def from_scipy(cls, a: Any) -> Csr:
        """A SciPy matrix of any format; elements of one place are added up."""
        coo = a.tocoo()
        return cls.from_coo(coo.data, coo.row, coo.col, coo.shape)

    def to_scipy(self) -> Any:
        """The same as a `scipy.sparse.csr_array`, where the elements are arrays."""
        from scipy.sparse import csr_array  # SciPy's sparse matrices take 0.1 s to import, and few need them

        return csr_array((np.asarray(self.data), self.indices, self.indptr), shape=self.shape)

    @property
    def indices(self) -> np.ndarray:
        return self.pattern.indices

    @property
    def indptr(self) -> np.ndarray:
        return self.pattern.indptr

    @property
    def shape(self) -> tuple[int, int]:
        return self.pattern.shape

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    @property
    def T(self) -> Csr:
        """The transpose."""
        pattern, order = self.pattern.transposed
        return Csr.of(rlx.take(self.data, order, axis=0), pattern)

    @property
    def H(self) -> Csr:
        """The conjugate transpose."""
        transposed = self.T
        return Csr.of(rlx.conjugate(transposed.data), transposed.pattern)

    def todense(self) -> Any:
        """All elements: [m, n]."""
        m, n = self.shape
        places = self.pattern.rows.astype(np.int64) * n + self.pattern.columns
        return rlx.reshape(scatter_add(self.data, places, axis=0, size=m * n), (m, n))

    def diagonal(self) -> Any:
        """Return the elements of the diagonal, with zeros where it has none."""
        (on,) = np.nonzero(self.pattern.rows == self.pattern.columns)
        return scatter_add(rlx.take(self.data, on, axis=0), self.pattern.rows[on], axis=0, size=min(self.shape))

    def __matmul__(self, x: Any) -> Any:
        """The product with a vector [n], a matrix [n, k], or another sparse matrix."""
        if isinstance(x, Csr):
            return self._times(x)
        x = x if isinstance(x, Value) else np.asarray(x)
        if x.ndim not in (1, 2) or x.shape[0] != self.shape[1]:
            raise ShapeError(
                f"Csr: {list(self.shape)} @ {list(x.shape)}: x must be [{self.shape[1]}] or that many rows"
            )
        columns = x if x.ndim == 2 else rlx.expand_dims(x, -1)
        products = rlx.expand_dims(self.data, -1) * rlx.take(columns, self.pattern.columns, axis=0)
        y = scatter_add(products, self.pattern.rows, axis=0, size=self.shape[0])
        return y if x.ndim == 2 else rlx.squeeze(y, axis=-1)

    def __rmatmul__(self, x: Any) -> Any:
        if x.ndim not in (1, 2):
            raise ShapeError(f"Csr: {list(x.shape)} @ {list(self.shape)}: x must have 1 or 2 axes")
        return self.T @ x if x.ndim == 1 else rlx.matrix_transpose(self.T @ rlx.matrix_transpose(x))

    def _times(self, other: Csr) -> Csr:
        if self.shape[1] != other.shape[0]:
            raise ShapeError(f"Csr: {list(self.shape)} @ {list(other.shape)}: {self.shape[1]} != {other.shape[0]}")
        pattern, left, right, which = self.pattern.product(other.pattern)
        return Csr.of(
            _added(rlx.take(self.data, left, axis=0) * rlx.take(other.data, right, axis=0), which, pattern), pattern
        )

    def __add__(self, other: Any) -> Csr:
        if not isinstance(other, Csr):
            return NotImplemented
        if self.shape != other.shape:
            raise ShapeError(
                f"Csr: matrices that are added have one shape, not {list(self.shape)} and {list(other.shape)}"
            )
        if self.pattern == other.pattern:
            return Csr.of(self.data + other.data, self.pattern)
        pattern, positions, other_positions = self.pattern.united(other.pattern)
        return Csr.of(_added(self.data, positions, pattern) + _added(other.data, other_positions, pattern), pattern)

    def __sub__(self, other: Any) -> Csr:
        return self + -other if isinstance(other, Csr) else NotImplemented

    def __neg__(self) -> Csr:
        return Csr.of(-self.data, self.pattern)

    def __mul__(self, scale: Any) -> Csr:
        """Every element times a number."""
        if np.ndim(scale) if not isinstance(scale, Value) else scale.ndim:
            raise ShapeError("Csr: only a number scales a sparse matrix", hint="Csr.of(data * x, pattern)")
        return Csr.of(self.data * scale, self.pattern)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"Csr({self.pattern.size} elements, shape={self.shape})"


def _added(data: Any, which: np.ndarray, pattern: Pattern) -> Any:
    """Return numbers summed by the elements of a pattern; `which` is the element of each number."""
    return scatter_add(data, which, axis=0, size=pattern.size)


def _flattened(a: Csr) -> tuple[tuple[Any], Pattern, tuple[str]]:
    return (a.data,), a.pattern, ("data",)


def _rebuilt(pattern: Pattern, children: Any) -> Csr:
    (data,) = children
    return Csr.of(data, pattern)


_rebuild: Callable[[Any, Any], Any] = _rebuilt
optree.register_pytree_node(Csr, _flattened, _rebuild, namespace=EVERYWHERE)  # type: ignore[arg-type]
