"""A kernel table of devices, and the rows that every one starts with: each op that is one loop kernel runs as one.

Structured kernels (products, attention, sorts) are rows of their ops and come before these, because a row of an op comes before
those of its base class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar, Unpack

from rlx_core.codegen import check_kernel, formula_of, kernel_of
from rlx_core.codegen.meaning import is_read_in_place
from rlx_core.codegen.places import Layout
from rlx_core.emit.emitters import Emit, Emitted, Language, library_call
from rlx_core.ir.block import Block
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ops import dynamic, kinds, normalization, selection, softmax
from rlx_core.ops.fused_loop import FusedLoop
from rlx_core.ops.region import ElementwiseRegion
from rlx_core.pipeline.kernels import Condition, Emitting, KernelTable, TraitWords

GENERATED, LIBRARY = "generated", "library"

TIERS = (GENERATED, LIBRARY, "host")
"""The tiers of the steps of a device's programs, best first."""

_E = TypeVar("_E", bound=Emit)
_R = TypeVar("_R", bound=Callable[..., None])


class DeviceTable(KernelTable):
    """A kernel table whose rows are emitters."""

    def emitter(self, *ops: type[Op], name: str, **traits: Unpack[TraitWords]) -> Callable[[_E], _E]:
        """Register the decorated emitter for each of `ops`; its kernels read strided operands and are generated, unless
        `traits`, which are those of `KernelTable.register`, say otherwise."""
        all_traits: TraitWords = {"accepts_strides": True, "tier": GENERATED, **traits}

        def add(emit: _E) -> _E:
            run = Emitting(emit)
            run.__doc__ = emit.__doc__
            self.register(*ops, name=name, **all_traits)(run)
            return emit

        return add

    def library(self, *ops: type[Op], name: str, **traits: Unpack[TraitWords]) -> Callable[[_R], _R]:
        """Register the decorated function for each of `ops`: it is given the op, the module of the device's array library, and
        arrays of that library for the operands and then the results, to which it writes. `traits` as in `emitter`."""
        all_traits: TraitWords = {"tier": LIBRARY, **traits}

        def add(run: _R) -> _R:
            def call(node: Node, layout: Layout) -> Emitted:
                return library_call(name, layout, partial(run, node.op))

            call.__doc__ = run.__doc__
            self.emitter(*ops, name=name, **all_traits)(call)
            return run

        return add


def loop_rows(table: DeviceTable, language: Language) -> None:
    """Add the rows for loop kernels in a language."""

    def reason(node: Node) -> str | None:
        if isinstance(node.op, Block):
            return "an op: a block is lowered before kernels are chosen"
        if node.is_leaf:
            return "an op: a leaf is given"
        for type in (*(t for t in node.operand_types if t is not None), *node.types):
            if type.dtype.is_complex:  # `complex_parts` writes these in real numbers, of which there are loops
                return language.lacking(type.dtype) or f"real numbers, not {type.dtype}"
        return language.refusal(node.op, node.operand_types)

    is_loop = Condition("a meaning that is one loop kernel", lambda node: reason(node) is None, reason)

    def loop(node: Node, layout: Layout) -> Emitted:
        """Return a kernel generated from the op's own definition."""
        formula = formula_of(node.op, node.operand_types)
        assert formula is not None, f"{node.op.name} was accepted as a loop kernel"
        return language.loop(check_kernel(kernel_of(formula, layout.operands, layout.results)))

    def add(*ops: type[Op], name: str, in_place: tuple[int, ...] = (), also: tuple[Condition, ...] = ()) -> None:
        table.emitter(*ops, when=(is_loop, *also), in_place=in_place, name=name, is_generated=True)(loop)

    add(kinds.Elementwise, name="loop", in_place=(0, 1))
    add(selection.Where, name="loop_where", in_place=(1, 2))
    add(*_ROWS, name="loop_rows", in_place=(0,))
    add(dynamic.DynamicUpdateSlice, name="loop_window", in_place=(0,))
    add(ElementwiseRegion, name="loop_region", in_place=tuple(range(8)))
    add(FusedLoop, name="loop_fused", in_place=tuple(range(16)), also=(reads_in_place,))
    add(FusedLoop, name="loop_fused_apart")
    table.emitter(Op, when=is_loop, name="loop_of", is_generated=True, priority=-1)(loop)


_ROWS = (softmax.Softmax, softmax.LogSoftmax, normalization.LayerNorm, normalization.RmsNorm)
"""Ops of several loops over a row, the first operand of which a result may take over."""


def _may_take_over(node: Node) -> bool:
    """Return whether the results of a fused loop may take the bytes of operands.

    With several results they may not: threads come to a row's later steps after others have written an earlier result of it, and
    read an operand again there.
    """
    return len(node.results) == 1 and is_read_in_place(node)


reads_in_place = Condition("one result, and operands of its type to be read where it is written", _may_take_over)
