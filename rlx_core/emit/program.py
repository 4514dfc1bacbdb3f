"""Programs of a device."""

from __future__ import annotations

from rlx_core.device.device import Device
from rlx_core.emit.code import Compiled, compile_plan
from rlx_core.emit.emitters import Language
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.select.backend import ObjectStore
from rlx_core.pipeline.select.kernels import KernelTable
from rlx_core.run.device_memory import DeviceMemory
from rlx_core.run.parts import parts_of
from rlx_core.run.plan import Locations
from rlx_core.run.poison import CANARY, Guard, with_gaps
from rlx_core.run.program import PlannedProgram

__all__ = ["build_program", "device_program"]


def build_program(
    lir: Lir,
    device: Device,
    kernels: KernelTable,
    language: Language,
    objects: ObjectStore | None = None,
    *,
    poison: bool = False,
) -> PlannedProgram:
    """The program of a plan.

    Raises:
        KernelBuildError: The device's compiler refuses a function.
    """
    return device_program(lir, device, kernels, compile_plan(lir, device, kernels, language, objects), poison=poison)


def device_program(
    lir: Lir, device: Device, kernels: KernelTable, compiled: Compiled, *, poison: bool = False
) -> PlannedProgram:
    """The program of a plan from compiled code; with `poison` it checks memory after every step."""
    if poison:
        lir = with_gaps(lir)
    locations = Locations(lir)
    code = compiled.on(lir, locations, device)
    memory = DeviceMemory(device, max(CANARY, device.facts.alignment) if poison else 0)

    def nested(number: int, name: str, plan: Lir) -> PlannedProgram:
        return device_program(plan, device, kernels, compiled.nested[number, name], poison=poison)

    return PlannedProgram(
        locations.plan(),
        memory,
        code,
        lambda: tuple(parts_of(lir, locations, kernels, code, nested, is_single=poison)),
        guard=Guard(lir) if poison else None,
        lir=lir,
    )
