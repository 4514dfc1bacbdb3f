"""Native code for people: the LLVM IR of each function as it is emitted, and the machine code that LLVM makes of it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import Level, Listing
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.run.listing import shared_listings
from rlx_core.system.records import evolve
from rlx_cpu.native.llvm.objects import Function
from rlx_cpu.native.llvm.optimise import assembly, new_module
from rlx_cpu.native.machine import CpuMachine
from rlx_cpu.native.runtime.compiled import Settings
from rlx_cpu.native.runtime.program import tunable_functions
from rlx_cpu.native.runtime.sizing import module_of, sized_steps
from rlx_cpu.native.runtime.steps import emit_step, layouts, reason_to_drive

LEVELS = (
    Level("llvm", "LLVM IR, as the emitters write it", comment=";"),
    Level("asm", "this machine's assembly language"),
)


def listings(
    lir: Lir,
    kernels: KernelTable,
    settings: Settings,
    level: str,
    steps: Sequence[int],
) -> list[Listing]:
    """Return the code of some steps at one of `LEVELS`; each function is in a separate module."""
    selected = frozenset(steps)
    machines: Mapping[Hashable, CpuMachine] = {}
    if settings.tuning is not None:
        machines = settings.tuning.selected(tunable_functions(lir), kernels, settings).machines
    native = {number: layout for number, layout in layouts(lir) if number in selected}
    sized = sized_steps(lir, native, kernels, settings.isa)

    def reason_without(number: int) -> str | None:
        return None if number in native else reason_to_drive(lir.steps[number]) or "runs with NumPy"

    def code_of(number: int) -> tuple[str, str]:
        step = lir.steps[number]
        title = step.node.op.name.rpartition(".")[2]
        name = f"step{number}_{title}"
        if number in sized:
            module, _ = module_of(sized[number].form, f"{name}_of_all_sizes")
        else:
            function = Function(step.kernel, step.node, native[number], step.nested, step.nested_offset)
            module = new_module(title)
            emit_step(module, name, evolve(function, machine=machines.get(function.key)), kernels, settings.isa)
        return (str(module) if level == "llvm" else assembly(module, settings.isa)), ""

    def function_of(number: int) -> object:
        return lir.steps[number].node.op, lir.steps[number].kernel, native[number]

    return shared_listings(steps, reason_without, function_of, code_of)
