"""The steps of a plan that run on the device: the code of each, and the layout of its operands and results."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from attrs import evolve

from rlx_core.codegen.places import Layout, Place, layout_of
from rlx_core.emit.emitters import Emit, Emitted, Function
from rlx_core.errors.contained import contained
from rlx_core.ir.graph import Value
from rlx_core.ir.lir import Lir, Step, placement
from rlx_core.ir.strides import WIDEST
from rlx_core.pipeline.kernels import KernelTable, emitter_of
from rlx_core.run.device_memory import aligned
from rlx_core.run.parts import is_empty
from rlx_core.system.records import frozen


@frozen(eq=False)
class Emissions:
    """The device code of the steps of a plan.

    Attributes:
        steps: By the step's number; missing ones run on the host, or have nothing to do.
        functions: All functions that they call, each once.
    """

    steps: Mapping[int, Emitted]
    functions: tuple[Function, ...]

    @property
    def workspace(self) -> int:
        """The bytes of the workspaces of a step, at most; steps follow one another and share them."""
        return max((sum(map(padded, each.workspaces)) for each in self.steps.values()), default=0)


def emissions(lir: Lir, kernels: KernelTable) -> Emissions:
    """Return the device code of the steps of a plan; equal steps share theirs."""
    known: dict[object, Emitted] = {}
    steps: dict[int, Emitted] = {}
    for number, step in enumerate(lir.steps):
        emit = emitter_of(kernels.get(step.kernel).run)
        if emit is None or is_empty(step):
            continue
        layout = aligned_layout(step, lir)
        key = (step.kernel, step.node.op, step.node.operand_types, layout)
        if key not in known:
            known[key] = _emitted(emit, step, layout, kernels)
        steps[number] = known[key]
    return Emissions(steps, Emitted.joined(known.values()).functions)


def _emitted(emit: Emit, step: Step, layout: Layout, kernels: KernelTable) -> Emitted:
    """Return an emitter's code for a step; its exceptions name the row."""
    row = kernels.get(step.kernel)
    with contained("kernels", row.name, f"the code of {step.node.op.name}", row.plugin or kernels.target):
        emitted = emit(step.node, layout)
        if not isinstance(emitted, Emitted):
            raise TypeError(f"its emitter returned {type(emitted).__name__}, not Emitted")
    return emitted


def aligned_layout(step: Step, lir: Lir) -> Layout:
    """Return the layout of a step's operands and results with alignments; views may begin at addresses unaligned for vectors."""
    layout = layout_of(step, lir)
    operands = zip(step.node.operands, layout.operands, strict=True)
    return Layout(
        tuple(None if v is None or p is None else _aligned(v, p, lir) for v, p in operands),
        tuple(_aligned(v, p, lir) for v, p in zip(step.node.results, layout.results, strict=True)),
    )


def _aligned(value: Value, place: Place, lir: Lir) -> Place:
    return evolve(place, alignment=gcd(placement(value, lir.aliases).byte_offset, WIDEST))


def padded(nbytes: int) -> int:
    """The bytes of a workspace, rounded up so that the next one is aligned."""
    return aligned(nbytes, 256)
