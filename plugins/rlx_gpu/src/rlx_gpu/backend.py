"""A backend whose devices take one of the GPU languages: a plug-in names the language and finds the devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from rlx_core.device.device import Device
from rlx_core.emit.backend import DeviceBackend
from rlx_core.emit.emitters import Language
from rlx_core.emit.table import DeviceTable
from rlx_core.pipeline.backend import Level
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.walks import Machine
from rlx_gpu.language import GpuLanguage
from rlx_gpu.rows.attention import attention_rows
from rlx_gpu.rows.linear_systems import system_rows
from rlx_gpu.rows.lines import line_rows
from rlx_gpu.rows.products import product_rows
from rlx_gpu.rows.scatter import scatter_rows
from rlx_gpu.rows.spacing import spacing_rows

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
        return self.language_in(self.dialect_of(device), device)

    def language_in(self, dialect: GpuDialect, device: Device) -> GpuLanguage:
        """Return a dialect as the language of a device."""
        facts = device.facts
        return GpuLanguage(dialect, self.machine(device), self.level_of(device), facts.unsupported, facts.features)

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
