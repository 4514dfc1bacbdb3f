"""Writing a device's programs: their functions as a few modules, and each program as a form that refers to them by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx_core.device.array import DeviceArray
from rlx_core.device.device import Device
from rlx_core.emit.code import functions_of, planned_calls, reason_on_host
from rlx_core.emit.emitters import Language
from rlx_core.emit.modules import MOST_AT_ONCE, dealt
from rlx_core.emit.packaged.fitting import WANTED_FORMS, Wanted
from rlx_core.emit.packaged.form import ModuleText, launches_form
from rlx_core.emit.steps import Emissions, emissions
from rlx_core.ir.forms import PLAIN_FORMS, Json
from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.backend import Params
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.pipeline.packages import Keep, PackedCode, expect_packable
from rlx_core.run.packaged.plan_form import PLAN_VERSION, PlanWriter
from rlx_core.run.parts import is_empty
from rlx_core.run.plan import Locations
from rlx_core.system.records import frozen


@frozen
class DeviceWriter:
    """The common code of programs for one device.

    Attributes:
        device: The device of the programs.
        features: Features of the device's interface that its kernels may use.
        builds: Whether the device is here, and its driver's compiler with it: its binaries are written too.
    """

    device: Device
    kernels: KernelTable
    language: Language
    keep: Keep
    features: frozenset[str]
    builds: bool

    def packed(self, programs: Sequence[tuple[Lir, Params]]) -> PackedCode:
        """Return the packed code of programs with their prepared parameters.

        Raises:
            NoKernelError, ConfigError: See `expect_packable`.
            KernelBuildError: The device's compiler refuses a function.
        """
        packed_programs = [self._program(lir, params) for lir, params in programs]
        facts, level = self.device.facts, self.language.level
        dtypes = {v.dtype.name for lir, _ in programs for node in lir.graph.nodes for v in node.results}
        requirements = Wanted(
            language=level.name,
            name=facts.name,
            driver=facts.driver,
            alignment=facts.alignment,
            group_size=max(size for _, size in packed_programs),
            shared_nbytes=facts.shared_nbytes,
            subgroup=facts.subgroup,
            features=tuple(sorted(self.features)),
            dtypes=tuple(sorted(dtypes)),
        )
        form = {
            "wanted": WANTED_FORMS.write(requirements, Wanted),
            "plans": PLAN_VERSION,
            "modules": self._modules([lir for lir, _ in programs]),
            "programs": [form for form, _ in packed_programs],
        }
        made_for = f"made on {facts.name}" if self.builds else f"for {facts.name}"
        return PackedCode(level.name, f"{level.summary}, {made_for}", form)

    def _modules(self, lirs: Sequence[Lir]) -> Json:
        functions = functions_of(lirs, self.kernels)
        parts = dealt(functions, len(functions) if self.language.has_one_entry else MOST_AT_ONCE) if functions else []
        modules = []
        for part in parts:
            source = self.language.module(part)
            binary = None
            if self.builds:
                driver = self.device.driver
                binary = driver.binary_of(driver.build(source))
            names = tuple(function.name for function in part)
            source_blob = self.keep(_bytes(source.encode()))
            modules.append(ModuleText(names, source_blob, None if binary is None else self.keep(_bytes(binary))))
        return PLAIN_FORMS.write(modules, tuple[ModuleText, ...])

    def _program(self, lir: Lir, params: Params) -> tuple[Json, int]:
        """The form of a program, and the most threads of its groups."""
        emission = emissions(lir, self.kernels)
        expect_packable(lir, lambda number, step: reason_against(emission, number, step))
        locations = Locations(lir)
        plan = locations.plan()
        arrays: list[Any] = [params[leaf.name] for leaf in plan.params]
        on_host = [array.to_host() if isinstance(array, DeviceArray) else array for array in arrays]
        calls = list(planned_calls(lir, locations, emission))
        form = launches_form(PlanWriter(plan, on_host, self.keep), calls, emission.workspace, lir.steps)
        return form, max((each.call.group_size for each in calls), default=1)


def reason_against(emission: Emissions, number: int, step: Step) -> str | None:
    """Return the reason why a step is not launches alone; `None` if it is."""
    emitted = emission.steps.get(number)
    if emitted is None:
        return None if is_empty(step) else reason_on_host(step)
    return f"{step.kernel} calls the device's library" if emitted.is_library else None


def _bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)
