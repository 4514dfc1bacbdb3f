"""The native steps of a plan: what each calls, where its buffers' addresses stand, and the code of all of them.

Steps with equal ops and layouts share one function, so equal layers are compiled once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from attrs import define, field, frozen

from rlx_core.ir.graph import Constant, Param, Value
from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.alias import placement
from rlx_cpu.native.contract import Emitted, Layout, Place
from rlx_cpu.native.isa import Isa
from rlx_cpu.native.jit import Code, compile_module, new_module
from rlx_cpu.native.table import NativeTable

__all__ = ["Compiled", "NativeStep", "Settings", "compile_steps", "emit_steps", "layouts"]


@frozen
class Settings:
    """How a program runs.

    Attributes:
        isa: What it is compiled for.
        threads: How many threads run it.
        spin_us: Microseconds that a waiting worker spins before it parks.
    """

    isa: Isa
    threads: int = 1
    spin_us: int = 200


@frozen(eq=False)
class NativeStep:
    """A step with its function: where its buffers' addresses stand in the table, and what it needs besides."""

    step: Step
    emitted: Emitted
    first: int
    workspace: int | None
    packs: tuple[int, ...]
    status: int | None


@define(eq=False)
class Packed:
    """Packed parameters, by step and pack; shared by clones, and made anew when parameters are."""

    version: int = -1
    arrays: dict[tuple[int, int], np.ndarray] = field(factory=dict)


@frozen(eq=False)
class Compiled:
    """The code of a program and its steps: everything that clones share."""

    code: Code | None
    steps: Mapping[int, NativeStep]
    table_words: int
    workspace: int
    settings: Settings
    packed: Packed = field(factory=Packed)

    def scratch_of(self, number: int) -> int:
        """The bytes of scratch memory that a step by its number may use: all threads' together."""
        if number not in self.steps:
            return 0
        emitted = self.steps[number].emitted
        return emitted.workspace_stride * self.settings.threads + emitted.shared_workspace

    @property
    def is_cached(self) -> bool:
        """Whether the code came from the object cache."""
        return self.code is not None and self.code.is_cached


def place_of(value: Value, lir: Lir, donated: frozenset[Value]) -> Place:
    """Where a value lies, as its kernel sees it."""
    place = placement(value, lir.aliases)
    op = place.root.node.op
    is_bound = isinstance(op, Constant | Param) and place.root not in donated
    one = isinstance(op, Constant) and op.value.array.size == 1
    literal = op.value.array.tobytes() if isinstance(op, Constant) and one else None
    return Place(value.type, place.strides, is_bound, literal)


def layouts(lir: Lir, table: NativeTable) -> Iterator[tuple[int, Layout]]:
    """The native steps by number, each with where its operands and results lie."""
    donated = frozenset(e.value for e in (*lir.manifest.inputs, *lir.manifest.params) if e.is_donated)
    donated |= frozenset(d.donor for d in lir.deliveries if d.donor is not None)
    for number, step in enumerate(lir.steps):
        if table.emitter(step.kernel) is not None and not step.nested:
            yield (
                number,
                Layout(
                    tuple(None if v is None else place_of(v, lir, donated) for v in step.node.operands),
                    tuple(place_of(v, lir, donated) for v in step.node.results),
                ),
            )


def emit_steps(lir: Lir, table: NativeTable, settings: Settings) -> tuple[Any, dict[int, Emitted]]:
    """A module with the functions of all native steps, and for each such step (by its number) what it calls."""
    module = new_module("program")
    known: dict[tuple[object, Layout], Emitted] = {}
    found: dict[int, Emitted] = {}
    for number, layout in layouts(lir, table):
        step = lir.steps[number]
        emit, node = table.emitter(step.kernel), step.node
        assert emit is not None, "only steps with an emitter have a layout"
        key = (node.op, layout)
        if key not in known:
            name = f"k{len(known)}_{node.op.name.rpartition('.')[2]}"
            known[key] = emit(module, node, layout, settings.isa, name)
        found[number] = known[key]
    return module, found


def compile_steps(lir: Lir, table: NativeTable, settings: Settings) -> Compiled:
    """The native half of a program."""
    module, emitted = emit_steps(lir, table, settings)
    steps: dict[int, NativeStep] = {}
    words = 0
    for number, made in emitted.items():
        node = lir.steps[number].node
        first, words = words, words + len(node.operands) + len(node.results)
        workspace = words if made.has_workspace else None
        words += made.has_workspace
        packs = tuple(range(words, words + len(made.packs)))
        words += len(packs)
        status = words if made.has_status else None
        words += made.has_status
        steps[number] = NativeStep(lir.steps[number], made, first, workspace, packs, status)
    scratch = max((e.workspace_stride * settings.threads + e.shared_workspace for e in emitted.values()), default=0)
    code = compile_module(module, settings.isa) if emitted else None
    return Compiled(code, steps, words, scratch, settings)
