"""Writing programs: the functions of their native steps as one image, and each program as a form that names them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import field

from rlx_core.codegen.places import Layout
from rlx_core.errors import ConfigError
from rlx_core.ir.array import usable
from rlx_core.ir.forms import Json
from rlx_core.ir.lir import Lir, Step
from rlx_core.ir.placed import At
from rlx_core.pipeline.backend import Keep, PackedCode, Params, expect_packable
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.run.memory import HostMemory
from rlx_core.run.packaged.plan_form import PLAN_VERSION, PlanWriter
from rlx_core.run.plan import Locations
from rlx_core.system.records import define
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm.background import yielding
from rlx_cpu.native.llvm.isa import Isa, host_isa, portable
from rlx_cpu.native.llvm.objects import Making
from rlx_cpu.native.llvm.optimise import generate, new_module
from rlx_cpu.native.machine import Speed
from rlx_cpu.native.runtime.code import ENTRY, RESULT_MEMORY, STEPS, VERSION
from rlx_cpu.native.runtime.compiled import CompiledSteps, Settings
from rlx_cpu.native.runtime.native_steps import arguments_of, packs_of
from rlx_cpu.native.runtime.own_code import module_of
from rlx_cpu.native.runtime.steps import emit_function, functions_of, laid_out, reason_to_drive
from rlx_cpu.native.table import is_native
from rlx_cpu.native.work import estimated_us
from rlx_cpu.packaged.features import NEEDS
from rlx_cpu.packaged.form import program_form
from rlx_cpu.packaged.image import image_form
from rlx_cpu.packaged.linking import linked


def packed(programs: Sequence[tuple[Lir, Params]], table: KernelTable, variant: str | None, keep: Keep) -> PackedCode:
    """Programs with their prepared parameters, as portable code for an instruction set; by default the best one of this machine.

    Raises:
        ConfigError: There is no such set, or something is donated.
        NoKernelError: A step of a program is not native.
    """
    host = host_isa()
    assert host is not None, "where there is native code there is an instruction set"
    isa = portable(variant or host.name)
    writer = Writer(isa, table, keep)
    forms = [writer.add(lir, params) for lir, params in programs]
    arch, needs = NEEDS[isa.name]
    runtime = {name: writer.module(name) for name in (STEPS, ENTRY, RESULT_MEMORY)}
    form = {
        "isa": isa.name,
        "arch": arch,
        "needs": list(needs),
        "runtime": VERSION,
        "plans": PLAN_VERSION,
        "modules": runtime,
        "code": writer.code(),
        "programs": forms,
    }
    return PackedCode(isa.name, f"Linux on {arch} with {isa.name}", form)


@define(eq=False)
class Writer:
    """The shared state of programs for one instruction set: their functions, each emitted once.

    Attributes:
        isa: The instruction set, as portable code.
        kernels: The kernels of the programs' target.
        keep: Stores bytes.
    """

    isa: Isa
    kernels: KernelTable
    keep: Keep
    _known: dict[tuple[str, object, Layout], Emitted | None] = field(factory=dict)
    _making: Making = field(init=False)

    @_making.default
    def _new_making(self) -> Making:
        return Making(self.isa)

    def add(self, lir: Lir, params: Params) -> Json:
        """Return the form of a program with its prepared parameters; errors are those of `expect_packable`."""
        expect_packable(lir, reason_against)
        settings = Settings(isa=self.isa)
        compiled = laid_out(lir, {number: (each, None, ()) for number, each in self._emitted(lir).items()}, settings)
        return _program_form(lir, compiled, params, self.keep, self.isa.machine.speed)

    def code(self) -> Json:
        """The code of all programs that were added."""
        objects = [each.result() for each in self._making.objects]
        return image_form(linked(objects), self.keep) if objects else None

    def module(self, name: str) -> Json:
        """The code of a module of the run-time."""
        return image_form(linked([generate(str(module_of(name, self.isa)), self.isa)]), self.keep)

    def _emitted(self, lir: Lir) -> dict[int, Emitted]:
        """Return the function of each step, by its number."""
        functions, calls = functions_of(lir)
        unique: list[Emitted] = []
        with yielding():
            for each in functions:
                key = (each.kernel, each.node.op, each.layout)
                if key not in self._known:
                    module = new_module("program", self.isa)
                    self._known[key] = emit_function(module, len(self._known), each, self.kernels, self.isa)
                    self._making.add(module)
                emitted = self._known[key]
                assert emitted is not None, "what is native has an emitter"
                if emitted.foreign:
                    raise ConfigError(
                        f"package: {each.kernel} calls {emitted.foreign[0][0]}, a function of another library",
                        hint="rlx.save writes the program itself, which is compiled where it is loaded",
                    )
                unique.append(emitted)
        return {number: unique[place] for number, place in calls.items()}


def reason_against(number: int, step: Step) -> str | None:
    """Return why a step is not one native function; `None` if it is."""
    if is_native(step.kernel):
        return reason_to_drive(step)
    return reason_to_drive(step) or f"{step.kernel} is a function of a library or of NumPy"


def _program_form(lir: Lir, compiled: CompiledSteps, params: Params, keep: Keep, speed: Speed) -> Json:
    locations = Locations(lir)
    plan = locations.plan()
    arrays = [usable(params[leaf.name]) for leaf in plan.params]
    writer = PlanWriter(plan, arrays, keep)
    arguments = arguments_of(compiled, locations)
    memory = HostMemory("cpu")
    packed: list[tuple[int, np.ndarray]] = []
    for each in packs_of(compiled, locations):
        roots = arrays if each.location.buffer.kind == "param" else plan.constants
        address = At(roots[each.location.buffer.number], each.location.offset)
        packed.append((each.word, each.pack.pack(memory.read(address, each.type, each.location.strides))))
    microseconds = {number: estimated_us(lir.steps[number], speed) for number in compiled.steps}
    return program_form(writer, compiled, arguments, packed, microseconds)
