"""The rows of a GPU's kernel table for scatters: the thread of each result element combines its updates, in index order."""

from __future__ import annotations

from math import prod
from typing import Any

from rlx_core.codegen.places import Layout, Place
from rlx_core.emit.emitters import Emitted
from rlx_core.emit.movement import buffers_of
from rlx_core.emit.table import DeviceTable
from rlx_core.ir.graph import Node
from rlx_core.ir.types import normalize_axis
from rlx_core.ops.indexing import ScatterAdd
from rlx_core.ops.scatter import Scatter
from rlx_core.pipeline.kernels import Condition
from rlx_gpu.codegen.scatter import OwnedScatter, print_scatter, refusal
from rlx_gpu.codegen.tiles import Factor
from rlx_gpu.language import GpuLanguage

_OUTSIDE: dict[str, Any] = {"error": "report", "clip": "clip", "fill": "drop"}


def scatter_rows(table: DeviceTable, language: GpuLanguage) -> None:
    """Add the rows in a language. Operands are dense, so that several axes of indices are one."""

    def lacking(node: Node) -> str | None:
        if isinstance(node.op, Scatter) and node.op.mode == "mul" and node.types[0].dtype.is_complex:
            return "real numbers to multiply"
        reason = next((reason for v in node.present() if (reason := language.lacking(v.dtype)) is not None), None)
        if reason is not None or not all(v.type.is_static for v in (*node.present(), *node.results)):
            return reason
        operands = tuple(None if v is None else Place.dense(v.type) for v in node.operands)
        layout = Layout(operands, tuple(Place.dense(t) for t in node.types))
        return refusal(problem_of(node.op, layout), language.dialect)

    is_there = Condition("dtypes that the device has", lambda node: lacking(node) is None, lacking)

    @table.emitter(Scatter, ScatterAdd, when=is_there, accepts_strides=False, name="scatter_by_owners")
    def scatter_by_owners(node: Node, layout: Layout) -> Emitted:
        """Combine, for every element of the result, the updates of that element; many updates are sorted first."""
        return language.printed(print_scatter, problem_of(node.op, layout))


def problem_of(op: Any, layout: Layout) -> OwnedScatter:
    """A scatter of dense operands."""
    has_base = isinstance(op, Scatter)
    (result,) = layout.results
    updates, indices = (place for place in layout.operands[-2:])
    assert updates is not None and indices is not None, "operands of a scatter are required"  # noqa: PT018
    extents, batch = result.type.static_shape, op.batch_dims
    axis = normalize_axis(op.axis, len(extents))
    count = prod(indices.type.static_shape[batch:])
    itemsize, after = result.type.dtype.itemsize, prod(extents[axis + 1 :])
    first = 1 if has_base else 0
    outer = dense((*extents[:axis], count), itemsize * after)
    tail = result.strides[axis + 1 :]
    along_batch = dense((*extents[:batch], count), indices.type.dtype.itemsize)
    return OwnedScatter(
        extents,
        axis,
        count,
        buffers_of(layout),
        index=Factor(first + 1, (*along_batch[:batch], *(0,) * (len(extents) - batch)), indices.type.dtype.itemsize),
        updates=Factor(first, (*outer[:axis], 0, *tail), itemsize * after),
        base=Factor(0, result.strides, 0) if has_base else None,
        result=Factor(first + 2, result.strides, 0),
        mode=op.mode if has_base else "add",
        outside=_OUTSIDE[op.oob],
        name=op.name.rpartition(".")[2],
    )


def dense(shape: tuple[int, ...], innermost: int) -> tuple[int, ...]:
    """Strides of a dense array whose last axis steps by `innermost` bytes."""
    return tuple(innermost * prod(shape[i + 1 :]) for i in range(len(shape)))
