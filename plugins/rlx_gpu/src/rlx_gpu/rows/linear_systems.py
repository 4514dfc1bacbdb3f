"""The rows of a GPU's kernel table for linear systems."""

from __future__ import annotations

from rlx_core.codegen.linear_systems import LinearSystems
from rlx_core.codegen.places import Layout
from rlx_core.emit.emitters import Emitted
from rlx_core.emit.table import DeviceTable
from rlx_core.ir.graph import Node
from rlx_core.ops.solve import BatchedDenseSolve, DenseSolve
from rlx_core.pipeline.kernels import Condition
from rlx_gpu.codegen.linear_systems import print_systems, refusal
from rlx_gpu.language import GpuLanguage


def system_rows(table: DeviceTable, language: GpuLanguage) -> None:
    """Add the rows in a language."""

    def lacking(node: Node) -> str | None:
        a, b = (v.type for v in node.present())
        reason = language.lacking(a.dtype)
        return reason or (refusal(LinearSystems.of(a, b), language.dialect) if a.is_static and b.is_static else None)

    is_there = Condition("elements that the device's template takes", lambda node: lacking(node) is None, lacking)

    @table.emitter(DenseSolve, BatchedDenseSolve, when=is_there, accepts_strides=False, name="solve_systems")
    def solve_systems(node: Node, layout: Layout) -> Emitted:
        """LU with partial pivoting, a group a system; a singular one is NaN."""
        a, b = (v.type for v in node.present())
        return language.printed(print_systems, LinearSystems.of(a, b))
