"""Programs of a device."""

from __future__ import annotations

from rlx_core.device.device import Device
from rlx_core.emit.code import CompiledPlan, DeviceCode
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.run.device_memory import DeviceMemory
from rlx_core.run.memory import CANARY
from rlx_core.run.plan import Locations
from rlx_core.run.program import PlannedProgram, planned_program


def device_program(
    lir: Lir, device: Device, kernels: KernelTable, compiled: CompiledPlan, *, poison: bool = False
) -> PlannedProgram:
    """The program of a plan from compiled code; with `poison` it checks memory after every step."""

    def nested(number: int, name: str, plan: Lir) -> PlannedProgram:
        return device_program(plan, device, kernels, compiled.nested[number, name], poison=poison)

    def code(planned: Lir, locations: Locations) -> DeviceCode:
        return compiled.on(planned, locations, device)

    memory = DeviceMemory(device, max(CANARY, device.facts.alignment) if poison else 0)
    return planned_program(lir, kernels, memory, code, nested)
