"""The rows of a GPU's kernel table for attention and its cotangents: tiles of scores, which are never stored."""

from __future__ import annotations

from typing import Any

from rlx_core.codegen.attention_scores import PlacedAttention
from rlx_core.codegen.places import Layout, Place
from rlx_core.emit.emitters import Emitted
from rlx_core.emit.table import DeviceTable
from rlx_core.ir.graph import Node
from rlx_core.ops.attention import Attention, AttentionBackward
from rlx_core.pipeline.kernels import Condition
from rlx_gpu.codegen.attention.backward import print_attention_backward
from rlx_gpu.codegen.attention.forward import print_attention, refusal
from rlx_gpu.codegen.units.head_tiles import unit_refusal
from rlx_gpu.language import GpuLanguage


def attention_rows(table: DeviceTable, language: GpuLanguage) -> None:
    """Add the rows in a language; operands and results lie at any strides."""
    attention_unit_rows(table, language)
    is_there = _is_there(language)

    @table.emitter(Attention, when=is_there, name="attention_tiles")
    def attention_tiles(node: Node, layout: Layout) -> Emitted:
        """An online softmax over tiles of keys, a group a tile of queries; products by threads."""
        return language.printed(print_attention, problem_of(node, layout))

    @table.emitter(AttentionBackward, when=is_there, name="attention_backward_tiles")
    def attention_backward_tiles(node: Node, layout: Layout) -> Emitted:
        """Statistics of queries, then cotangents by owners of queries and by owners of keys; products by threads."""
        return language.printed(print_attention_backward, problem_of(node, layout))


def attention_unit_rows(
    table: DeviceTable, language: GpuLanguage, also: tuple[Condition, ...] = (), suffix: str = ""
) -> None:
    """Add the rows that use matrix units, if the language has them.

    Args:
        also: Additional conditions on steps.
        suffix: Suffix of the rows' names, for a table that has them in two languages.
    """
    if language.dialect.matrix_unit is None:
        return

    def lacking(node: Node) -> str | None:
        if not all(v.type.is_static for v in (*node.present(), *node.results)):
            return None
        return unit_refusal(dense_problem_of(node), language.dialect, language.machine)

    has_units = Condition("matrix units", lambda node: lacking(node) is None, lacking)
    when = (*also, _is_there(language), has_units)

    @table.emitter(Attention, when=when, name=f"attention_units{suffix}")
    def attention_units(node: Node, layout: Layout) -> Emitted:
        """An online softmax over tiles of keys, in registers; products by matrix units."""
        return language.printed(print_attention, problem_of(node, layout))

    @table.emitter(AttentionBackward, when=when, name=f"attention_backward_units{suffix}")
    def attention_backward_units(node: Node, layout: Layout) -> Emitted:
        """Statistics of queries, then cotangents by owners of queries and by owners of keys; products by matrix units."""
        return language.printed(print_attention_backward, problem_of(node, layout))


def _is_there(language: GpuLanguage) -> Condition:
    """Return the condition that the template takes a problem, and the device its dtypes."""

    def lacking(node: Node) -> str | None:
        reason = next((reason for v in node.present() if (reason := language.lacking(v.dtype)) is not None), None)
        if reason is not None or not all(v.type.is_static for v in (*node.present(), *node.results)):
            return reason
        return refusal(dense_problem_of(node), language.dialect, language.scalars)

    return Condition("scores that the device's template takes", lambda node: lacking(node) is None, lacking)


def dense_problem_of(node: Node) -> PlacedAttention:
    """Return the problem with all arrays dense, for conditions."""
    operands = tuple(None if v is None else Place.dense(v.type) for v in node.operands)
    return problem_of(node, Layout(operands, tuple(Place.dense(t) for t in node.types)))


def problem_of(node: Node, layout: Layout) -> PlacedAttention:
    op: Any = node.op
    return PlacedAttention.of(op, layout)
