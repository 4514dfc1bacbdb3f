"""Programs of a device from a package's form: the check whether they run there, and their modules and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field

from rlx_core.device.device import Device
from rlx_core.emit.code import DeviceCode
from rlx_core.emit.modules import Modules
from rlx_core.emit.packaged.fitting import WANTED_FORMS, Wanted
from rlx_core.emit.packaged.form import ModuleText, PackedLaunches
from rlx_core.errors import FormatError, KernelBuildError
from rlx_core.ir.forms import PLAIN_FORMS, Json, need
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.backend import Program
from rlx_core.pipeline.packages import Blobs
from rlx_core.run.device_memory import DeviceMemory
from rlx_core.run.packaged.program import packaged_program
from rlx_core.system.records import define


def wanted_of(form: Json) -> Wanted:
    """Return the requirements of a form's code on a device.

    Raises:
        FormatError: It is no form of a device's code.
    """
    return WANTED_FORMS.read(need(form, dict, "code").get("wanted"), Wanted, "what code expects of a device")


@define(eq=False)
class DevicePackage:
    """The programs of a form on a device; modules are built and weights uploaded when a program first needs them."""

    device: Device
    blobs: Blobs
    programs: list[Json]
    texts: Mapping[str, ModuleText]
    has_binaries: bool
    _modules: dict[int, Any] = field(factory=dict)
    _on_device: dict[tuple[str, str], Any] = field(factory=dict)  # the weights, which all programs share

    @classmethod
    def read(cls, form: Json, blobs: Blobs, device: Device) -> DevicePackage:
        """The code of a form.

        Raises:
            FormatError: It is not a form of device code.
        """
        row = need(form, dict, "code")
        modules = PLAIN_FORMS.read(row.get("modules"), tuple[ModuleText, ...], "modules")
        texts = {name: module for module in modules for name in module.functions}
        programs = need(row.get("programs"), list, "programs")
        return cls(device, blobs, programs, texts, wanted_of(form).is_of(device.facts))

    def program(self, number: int, inputs: tuple[TensorType, ...], outputs: tuple[TensorType, ...]) -> Program:
        """See `Unpack`."""
        if not 0 <= number < len(self.programs):
            raise FormatError(f"package: there are {len(self.programs)} programs, and none of number {number}")
        packed = PackedLaunches.from_json(self.programs[number], self.device.name, self.blobs.nbytes, self.texts)
        packed.plan.expect_types(number, inputs, outputs)
        modules = {each.call.function: self._module(self.texts[each.call.function]) for each in packed.calls}
        code = DeviceCode(
            self.device, packed.calls, Modules(modules, is_cached=True), packed.workspace_nbytes, origin="packaged"
        )
        return packaged_program(packed.plan, DeviceMemory(self.device), code, self.blobs, self._on_device)

    def _module(self, text: ModuleText) -> Any:
        if text.source not in self._modules:
            self._modules[text.source] = self._built(text)
        return self._modules[text.source]

    def _built(self, text: ModuleText) -> Any:
        driver = self.device.driver
        try:
            source = self.blobs.arrays([text.source])[0].tobytes().decode()
        except UnicodeDecodeError:
            raise FormatError(f"package: blob {text.source} is no source") from None
        if text.binary is not None and self.has_binaries:
            try:
                return driver.build(source, self.blobs.arrays([text.binary])[0].tobytes())
            except KernelBuildError:
                # A driver of the same name that refuses these binaries: its compiler builds the source.
                return driver.build(source)
        return driver.build(source)
