"""The rows of a GPU's kernel table for ops along lines of an array: sorts, searches, places of extremes, running reductions."""

from __future__ import annotations

from typing import Any

from rlx_core.codegen.ordering import Extreme, Search, Sorting
from rlx_core.codegen.places import Layout
from rlx_core.codegen.scans import RULES, ScanProblem
from rlx_core.emit.emitters import Emitted
from rlx_core.emit.table import DeviceTable
from rlx_core.ir.graph import Node
from rlx_core.ir.types import TensorType
from rlx_core.ops.counting import ArgMax, ArgMin
from rlx_core.ops.sorting import ArgSort, SearchSorted, Sort, TopK
from rlx_core.pipeline.kernels import Condition
from rlx_gpu.codegen.lines import extremes, scans, searching, sorting
from rlx_gpu.language import GpuLanguage


def line_rows(table: DeviceTable, language: GpuLanguage) -> None:
    """Add the rows in a language. Templated kernels iterate over dense lines."""
    dialect, scalars = language.dialect, language.scalars

    def lacking_sorted(node: Node) -> str | None:
        x, first = operand_of(node), node.types[0]
        if not (x.is_static and first.is_static):
            return language.lacking(x.dtype)
        return language.lacking(x.dtype) or sorting.refusal(Sorting.of(node.op, x, first), dialect)

    def lacking_extreme(node: Node) -> str | None:
        x = operand_of(node)
        return language.lacking(x.dtype) or (
            extremes.refusal(Extreme.of(as_any(node.op), x), dialect) if x.is_static else None
        )

    def lacking_searched(node: Node) -> str | None:
        sorted, v = node.operand_types
        assert sorted is not None, "sorted lines are required"
        assert v is not None, "values are required"
        if not (sorted.is_static and v.is_static):
            return language.lacking(v.dtype)
        return language.lacking(v.dtype) or searching.refusal(Search.of(as_any(node.op), sorted, v), dialect)

    def lacking_running(node: Node) -> str | None:
        x = operand_of(node)
        return language.lacking(x.dtype) or (
            scans.refusal(ScanProblem.of(node.op, x), dialect, scalars) if x.is_static else None
        )

    @table.emitter(Sort, ArgSort, TopK, when=held(lacking_sorted), accepts_strides=False, name="sort_lines")
    def sort_lines(node: Node, layout: Layout) -> Emitted:
        """Tiles sorted in shared memory, then merged by rank; stable."""
        problem = Sorting.of(node.op, operand_of(node), node.types[0])
        return language.printed(sorting.print_sorting, problem)

    @table.emitter(SearchSorted, when=held(lacking_searched), accepts_strides=False, name="search_lines")
    def search_lines(node: Node, layout: Layout) -> Emitted:
        """A thread a value, by halving."""
        types: Any = node.operand_types
        return language.printed(searching.print_search, Search.of(as_any(node.op), *types))

    @table.emitter(ArgMax, ArgMin, when=held(lacking_extreme), accepts_strides=False, name="extreme_of_lines")
    def extreme_of_lines(node: Node, layout: Layout) -> Emitted:
        """The smallest key of a line, and the first place that has it."""
        return language.printed(extremes.print_extreme, Extreme.of(as_any(node.op), operand_of(node)))

    @table.emitter(*RULES, when=held(lacking_running), accepts_strides=False, name="running")
    def running(node: Node, layout: Layout) -> Emitted:
        """Return the code of a scan along lines: threads scan stretches, and the totals before each in shared memory."""
        return language.printed(scans.print_scan, ScanProblem.of(node.op, operand_of(node)))


def held(lacking: Any) -> Condition:
    """Return the condition that no requirement is unmet."""
    return Condition("lines that the device's template takes", lambda node: lacking(node) is None, lacking)


def operand_of(node: Node) -> TensorType:
    """The type of the first operand."""
    x = node.operand_types[0]
    assert x is not None, "the first operand is required"
    return x


def as_any(op: Any) -> Any:
    """Return an op, whose class the row has checked, as `Any`."""
    return op
