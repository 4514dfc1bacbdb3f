"""Native code for people: the LLVM IR of each function as it is emitted, and the machine code that LLVM makes of it."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.codegen.places import Layout
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import Level, Listing
from rlx_cpu.native.contract import Emitters
from rlx_cpu.native.llvm.objects import Function
from rlx_cpu.native.llvm.optimise import assembly, new_module
from rlx_cpu.native.runtime.steps import Settings, emit_step, layouts, reason_to_drive

__all__ = ["LEVELS", "listings"]

LEVELS = (
    Level("llvm", "LLVM IR, as the emitters write it", comment=";"),
    Level("asm", "this machine's assembly language"),
)


def listings(lir: Lir, table: Emitters, settings: Settings, level: str, steps: Sequence[int]) -> list[Listing]:
    """The code of some steps at one of `LEVELS`; each function stands in a module of its own."""
    wanted = frozenset(steps)
    native = {number: layout for number, layout in layouts(lir) if number in wanted}
    shared: dict[tuple[object, str, Layout], list[int]] = {}
    for number, layout in native.items():
        shared.setdefault((lir.steps[number].node.op, lir.steps[number].kernel, layout), []).append(number)
    found = [
        Listing((number,), "", reason_to_drive(lir.steps[number]) or "runs with NumPy")
        for number in steps
        if number not in native
    ]
    for (_, _, layout), numbers in shared.items():
        found.append(Listing(tuple(numbers), code(lir, table, settings, level, numbers[0], layout)))
    return found


def code(lir: Lir, table: Emitters, settings: Settings, level: str, number: int, layout: Layout) -> str:
    """The function of one step."""
    step = lir.steps[number]
    title = step.node.op.name.rpartition(".")[2]
    function = Function(step.kernel, step.node, layout, step.nested, step.nested_offset)
    module = new_module(title)
    emit_step(module, f"step{number}_{title}", function, table, settings.isa)
    return str(module) if level == "llvm" else assembly(module, settings.isa)
