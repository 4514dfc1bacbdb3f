"""Sorts as native kernels, for known or dynamic sizes: `sorting.py` has the per-thread code."""

from __future__ import annotations

from typing import Any

from rlx_core.codegen.ordering import Sorting
from rlx_core.codegen.places import Layout
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ir.types import normalize_axis
from rlx_core.ops.sorting import ArgSort, Sort, TopK
from rlx_core.pipeline.kernels import condition
from rlx_cpu.native.contract import Call, Emitted, KernelForm
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.ordering.radix import Radix
from rlx_cpu.native.ordering.selection import SelectionRow
from rlx_cpu.native.ordering.sorting import SortProblem, emit_sort, write_sort
from rlx_cpu.native.table import native


@condition("rows of fewer than 2^32 elements")
def has_words(node: Node) -> bool:
    op: Any = node.op
    (x,) = node.present()
    size = x.shape[normalize_axis(op.axis, x.ndim)]
    return not isinstance(size, int) or size < 1 << 32


def sized_sort(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> KernelForm | None:
    """Finds the form of a sorting of any number of lines, and of lines of any length that are sorted digit by digit."""
    (x,), (lying,) = node.present(), layout.required(0)
    sorting = Sorting.of(node.op, x.type, node.types[0])
    known = SortProblem.of(node.op, lying.type, layout.results[0].type, isa)
    is_wide = None
    if not is_known(sorting.n):
        is_few = sorting.kept != sorting.n
        if is_few or sorting.inner != 1 or known.is_cut or not isinstance(known.way, Radix):
            return None  # the partition of lines and the top-k algorithm depend on their length
        is_wide = known.way.is_wide
    elif not is_known(sorting.kept):
        return None  # the number of kept elements decides the algorithm
    if not is_known(sorting.inner) or (is_known(sorting.kept) and sorting.kept == 0):
        return None
    problem = SortProblem(SelectionRow(isa, sorting.keys, sorting.n), sorting, known.is_cut, is_wide)

    def call(layout: Layout, sizes: DimBinding) -> Call | None:
        (x,) = layout.required(0)
        known = SortProblem.of(node.op, x.type, layout.results[0].type, isa)
        if known.is_cut != problem.is_cut:
            return None
        is_wide = known.way.is_wide if isinstance(known.way, Radix) else None
        if not is_known(sorting.n) and is_wide is not problem.has_wide_digits:
            return None
        parts = max(known.parts, int(not known.is_cut))
        return Call(sizes, known.workspace, uses_threads=known.uses_threads, parts=parts)

    def emit(module: ir.Module, name: str) -> Emitted:
        write_sort(module, problem, name)
        return Emitted(name, workspace=1)  # passed in every call

    return KernelForm(f"{sorting!r} {problem.is_cut} {problem.has_wide_digits}", call, emit)


native.register(Sort, ArgSort, TopK, when=has_words, accepts_strides=False, name="sort", sized=sized_sort)(emit_sort)
