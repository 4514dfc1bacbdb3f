"""Native code for people: the LLVM IR of each function as it is emitted, and the machine code that LLVM makes of it."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.codegen.places import Layout
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import Level, Listing
from rlx_core.run.listing import shared_listings
from rlx_cpu.native.contract import Emitters, SizedForm
from rlx_cpu.native.llvm.objects import Function
from rlx_cpu.native.llvm.optimise import assembly, new_module
from rlx_cpu.native.runtime.compiled import Settings
from rlx_cpu.native.runtime.sizing import module_of, sized_steps
from rlx_cpu.native.runtime.steps import emit_step, layouts, reason_to_drive

__all__ = ["LEVELS", "listings"]

LEVELS = (
    Level("llvm", "LLVM IR, as the emitters write it", comment=";"),
    Level("asm", "this machine's assembly language"),
)


def listings(lir: Lir, table: Emitters, settings: Settings, level: str, steps: Sequence[int]) -> list[Listing]:
    """Return the code of some steps at one of `LEVELS`; each function is in a separate module."""
    selected = frozenset(steps)
    native = {number: layout for number, layout in layouts(lir) if number in selected}
    sized = sized_steps(lir, native, table, settings.isa)

    def reason_without(number: int) -> str | None:
        return None if number in native else reason_to_drive(lir.steps[number]) or "runs with NumPy"

    def code_of(number: int) -> tuple[str, str]:
        form = sized[number].form if number in sized else None
        return code(lir, table, settings, level, number, native[number], form), ""

    def function_of(number: int) -> object:
        return lir.steps[number].node.op, lir.steps[number].kernel, native[number]

    return shared_listings(steps, reason_without, function_of, code_of)


def code(
    lir: Lir, table: Emitters, settings: Settings, level: str, number: int, layout: Layout, form: SizedForm | None
) -> str:
    """Return the function of one step: that of its dynamic-shape form, if it has one."""
    step = lir.steps[number]
    title = step.node.op.name.rpartition(".")[2]
    if form is not None:
        form_module, _ = module_of(form, f"step{number}_{title}_of_all_sizes")
        return str(form_module) if level == "llvm" else assembly(form_module, settings.isa)
    function = Function(step.kernel, step.node, layout, step.nested, step.nested_offset)
    module = new_module(title)
    emit_step(module, f"step{number}_{title}", function, table, settings.isa)
    return str(module) if level == "llvm" else assembly(module, settings.isa)
