"""A backend whose devices take one of the GPU languages: a plug-in names the language and finds the devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from rlx_core.codegen.gpu.languages import Language as GpuDialect
from rlx_core.codegen.gpu.walks import Machine
from rlx_core.device.device import Device
from rlx_core.emit.attention_rows import attention_rows
from rlx_core.emit.backend import DeviceBackend
from rlx_core.emit.emitters import Language
from rlx_core.emit.gpu import GpuLanguage
from rlx_core.emit.line_rows import line_rows
from rlx_core.emit.products import product_rows
from rlx_core.emit.scatter_rows import scatter_rows
from rlx_core.emit.spacing_rows import spacing_rows
from rlx_core.emit.system_rows import system_rows
from rlx_core.emit.table import DeviceTable
from rlx_core.pipeline.select.backend import Level

__all__ = ["GpuBackend"]

ON_A_PROCESSOR: Final = 4
"""Threads that share a row: measured with PoCL, where RMS norms took a half to a fifth of the time that groups of 256 took."""


class GpuBackend(DeviceBackend):
    """The backend of one device of a target, in a GPU language.

    Attributes:
        dialect: The language.
        level: The name of the language for `emit`.
    """

    dialect: ClassVar[GpuDialect]
    level: ClassVar[Level]

    def dialect_of(self, device: Device) -> GpuDialect:
        """Return the language with the features that only this device has."""
        return self.dialect

    def level_of(self, device: Device) -> Level:
        """Return the level of that language for `emit`."""
        return self.level

    def machine(self, device: Device) -> Machine:
        """Return the device properties that schedules depend on."""
        facts = device.facts
        return Machine(
            group=min(256, facts.group_size),
            row_group=ON_A_PROCESSOR if facts.is_processor and facts.subgroup is None else None,
            subgroup=facts.subgroup,
            shared_nbytes=facts.shared_nbytes,
        )

    def language(self, device: Device) -> Language:
        return GpuLanguage(self.dialect_of(device), self.machine(device), self.level_of(device), device.facts.lacks)

    def rows(self, table: DeviceTable, language: Language) -> None:
        assert isinstance(language, GpuLanguage), "it is what this backend made"
        product_rows(table, language)
        line_rows(table, language)
        attention_rows(table, language)
        scatter_rows(table, language)
        system_rows(table, language)
        spacing_rows(table, language)
        super().rows(table, language)

    def is_poisoned(self, options: Mapping[str, Any]) -> bool:
        return bool(options.get(f"{self.name}.poison"))
