"""Dense linear systems as a problem: how many, of how many unknowns, with how many right sides."""

from __future__ import annotations

import numpy as np

from rlx_core.ir.dtypes import DType
from rlx_core.ir.types import TensorType
from rlx_core.ops.solve import BatchedDenseSolve
from rlx_core.system.records import frozen


@frozen
class LinearSystems:
    """`stack` systems of `n` unknowns with `k` right sides each, all dense; NaN is the solution of a singular one."""

    dtype: DType
    stack: int
    n: int
    k: int

    @classmethod
    def of(cls, a: TensorType, b: TensorType) -> LinearSystems:
        """Return the problem of solving `a x = b`, from the types of both."""
        *leading, n, _ = a.static_shape
        stack = 1
        for size in leading:
            stack *= size
        return cls(a.dtype, stack, n, b.static_shape[-1] if b.rank == a.rank else 1)

    def __str__(self) -> str:
        return f"solve {self.stack} × {self.dtype}[{self.n}, {self.n}] for {self.k} right sides"

    @property
    def width(self) -> int:
        """Elements of a row of a matrix and its right sides side by side."""
        return self.n + self.k

    @property
    def elements(self) -> int:
        return self.stack * self.n * self.width

    def run(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The solutions with NumPy, of dense arrays of any shape."""
        columns = b.reshape(self.stack, self.n, self.k)
        return BatchedDenseSolve().reference(a.reshape(self.stack, self.n, self.n), columns).reshape(b.shape)
