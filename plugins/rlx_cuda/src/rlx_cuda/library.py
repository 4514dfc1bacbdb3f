"""The kernel table's rows that CUDA's libraries run, by CuPy: cuSOLVER for systems, cuBLAS for products if an option says so."""

from __future__ import annotations

from typing import Final

from rlx_core.codegen.places import Layout
from rlx_core.emit.emitters import Emitted, library_call
from rlx_core.emit.table import DeviceTable
from rlx_core.ir.graph import Node
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.solve import BatchedDenseSolve, DenseSolve

__all__ = ["FEATURE", "product_rows", "solver_rows"]

FEATURE: Final = "library"
"""What a device has whose driver calls CuPy; the stand-in has not."""


def solver_rows(table: DeviceTable) -> None:
    """Add the rows for linear systems."""

    @table.emitter(DenseSolve, BatchedDenseSolve, dtypes="f32 f64", tier="library", name="library_solve")
    def library_solve(node: Node, layout: Layout) -> Emitted:
        """LU with pivoting by cuSOLVER, of stacks by cuBLAS."""
        return library_call("solve", layout)


def product_rows(table: DeviceTable) -> None:
    """Add the row for products, in front of the generated ones; what follows a product is generated anyway."""

    @table.emitter(MatMul, dtypes="f32 f64", tier="library", priority=1, name="library_product")
    def library_product(node: Node, layout: Layout) -> Emitted:
        """cuBLAS, without TF32."""
        return library_call("matmul", layout)
