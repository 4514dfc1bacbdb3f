"""A backend that generates code for devices with separate memory: a plugin lists the devices and provides their
language, and inherits everything else."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from attrs import evolve

from rlx_core.device.device import Device
from rlx_core.device.diagnostics import Diagnostics
from rlx_core.device.driver import DeviceFacts, Driver
from rlx_core.emit.code import CompiledPlan, compile_plan, functions_of
from rlx_core.emit.emitters import Language
from rlx_core.emit.listing import listings
from rlx_core.emit.modules import build_modules
from rlx_core.emit.movement import movement_rows
from rlx_core.emit.packaged.opening import DevicePackage, wanted_of
from rlx_core.emit.packaged.writing import DeviceWriter
from rlx_core.emit.program import device_program
from rlx_core.emit.rearranging import Rearranger
from rlx_core.emit.table import GENERATED, TIERS, DeviceTable, loop_rows
from rlx_core.errors import ConfigError, DeviceError, DeviceUnavailableError, Fact
from rlx_core.ir.forms import Json
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import ABSENT, Backend, Level, Listing, ObjectStore, Params, Program, Target
from rlx_core.pipeline.kernels import Kernel, KernelTable, emitter_of
from rlx_core.pipeline.packages import Blobs, Keep, PackedCode, Unpack
from rlx_core.run.control import control_rows
from rlx_core.run.packaged.plan_form import reason_against_version
from rlx_core.system.locks import Lock


class DeviceBackend(Backend):
    """The backend of one device of a target.

    Attributes:
        name: The target's.
        number: Index of its device.
    """

    name: str
    longest_kernel: int = 128
    """Element-wise ops in one kernel: beyond that a driver's compiler takes long and registers do not suffice."""
    usual: DeviceFacts | None = None
    """Facts of a typical device, to print code where no device is present; `None` for a target that prints none."""
    library_features: frozenset[str] = frozenset()
    """The features of their devices that only calls of the device's library need, and no kernel."""
    diagnostics: ClassVar[Diagnostics] = Diagnostics()
    """The vendor's programs, variables and libraries by which a device is examined."""
    below: tuple[Level, ...] = ()
    """Levels that the language's own compiler produces from a source and that can be printed; see `translated`."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self._is_absent = False
        self._absent: dict[DeviceFacts, Device] = {}
        self._lock = Lock(f"the kernels of {self.name}:{number}")
        self._tables: dict[Device, tuple[Language, KernelTable]] = {}

    # ------------------------------------------------------------------------- provided by a plug-in

    @abstractmethod
    def found(self, options: Mapping[str, Any]) -> Sequence[Device]:
        """Return the available devices, best first; one object for each in a process.

        Raises:
            DeviceUnavailableError: No device is present; the error has the package to install or the setting to change.
        """

    def usual_for(self, options: Mapping[str, Any]) -> DeviceFacts | None:
        """`usual`, where options choose between kinds of devices."""
        return self.usual

    @abstractmethod
    def language(self, device: Device) -> Language:
        """Return the language of its kernels."""

    def rows(self, table: DeviceTable, language: Language) -> None:
        """Add the rows of the kernel table; structured kernels first, if there are any."""
        control_rows(table, tier=GENERATED)
        loop_rows(table, language)
        movement_rows(table, language)

    def translated(self, source: str, level: str, device: Device, options: Mapping[str, Any]) -> str:
        """A source at one of the levels `below`.

        Raises:
            RlxError: The compiler is not there, or refuses it.
        """
        raise AssertionError(f"{self.name} offers the level {level} and has no compiler for it")

    def kernel_features(self, target: Target) -> frozenset[str]:
        """Return the features of a device that a target's kernels may use."""
        return expect_device(target).facts.features - self.library_features

    def is_poisoned(self, options: Mapping[str, Any]) -> bool:
        """Return whether memory is filled with NaN before it is written and after it was read."""
        return False

    # --------------------------------------------------------------------------------- the backend

    def on(self, number: int) -> Backend:
        return self if number == self.number else type(self)(number)

    def absent(self) -> Backend | None:
        if self.usual is None:
            return None
        result = type(self)()
        result._is_absent = True
        return result

    @property
    def target(self) -> Target:  # type: ignore[override]  # created on access, and not assigned
        return self.target_for({})

    def target_for(self, options: Mapping[str, Any]) -> Target:
        device = self.device(options)
        facts = device.facts
        return Target(
            name=self.name,
            kernels=self._made(device)[1],
            alignment=max(256, facts.alignment),
            accepts_views=True,
            region_limits=(self.longest_kernel, None),
            properties={"device": device.name, "name": facts.name, "driver": facts.driver},
            tiers=TIERS,
            adopt=adopted,
            device=device,
        )

    def device(self, options: Mapping[str, Any]) -> Device:
        """Return the device of this backend.

        Raises:
            DeviceError: There are fewer.
            DeviceUnavailableError: No device is present.
        """
        if self._is_absent:
            facts = self.usual_for(options)
            assert facts is not None, "a target that prints no code has no absent device"
            return self._absent.setdefault(facts, Device(f"{self.name}:{ABSENT}", facts, refusing(self.name)))
        devices = self.found(options)
        if not devices:
            raise DeviceUnavailableError(f"{self.name}: there is no device")
        if self.number >= len(devices):
            count = f"there {'is' if len(devices) == 1 else 'are'} {len(devices)}, counted from 0"
            raise DeviceError(f"{self.name}:{self.number}: {count}", *(Fact(d.name, d.facts.name) for d in devices))
        return devices[self.number]

    def compile(self, lir: Lir, target: Target, options: Mapping[str, Any]) -> Program:
        return self.build(lir, target, options, None)

    def build(self, lir: Lir, target: Target, options: Mapping[str, Any], objects: ObjectStore | None) -> Program:
        device = expect_device(target)
        chosen = options.get("options", {})
        code = compile_plan(lir, device, target.kernels, self._made(device)[0], objects)
        return device_program(lir, device, target.kernels, code, poison=self.is_poisoned(chosen))

    def another(self, lir: Lir, target: Target, options: Mapping[str, Any], code: object) -> Program | None:
        assert isinstance(code, CompiledPlan), "it is what a program of this backend had"
        poison = self.is_poisoned(options.get("options", {}))
        return device_program(lir, expect_device(target), target.kernels, code, poison=poison)

    @contextmanager
    def built_ahead(self, lirs: Sequence[Lir], target: Target, options: Mapping[str, Any]) -> Iterator[None]:
        device = expect_device(target)
        functions = functions_of(lirs, target.kernels)
        device.ahead = build_modules(device, self._made(device)[0], functions, None).by_function
        try:
            yield
        finally:
            device.ahead = {}

    def levels(self, target: Target) -> tuple[Level, ...]:
        return (self._made(expect_device(target))[0].level, *self.below)

    def emit(
        self, lir: Lir, target: Target, options: Mapping[str, Any], level: str, steps: Sequence[int]
    ) -> Sequence[Listing]:
        device = expect_device(target)
        language, chosen = self._made(device)[0], options.get("options", {})
        entries = listings(lir, target.kernels, language, steps)
        if level == language.level.name:
            return entries
        return [evolve(each, text=each.text and self.translated(each.text, level, device, chosen)) for each in entries]

    def pack(
        self, programs: Sequence[tuple[Lir, Params]], target: Target, variant: str | None, keep: Keep
    ) -> PackedCode:
        device = expect_device(target)
        language = self._made(device)[0]
        if variant not in (None, language.level.name):
            raise ConfigError(
                f"package: {self.name} has no code called {variant}, only {language.level.name}",
                hint=f'"{self.name}" is for the device that is here, "{self.name}:{ABSENT}" for most that are not',
            )
        return DeviceWriter(
            device, target.kernels, language, keep, self.kernel_features(target), not self._is_absent
        ).packed(programs)

    def reason_against_code(self, form: Json, options: Mapping[str, Any]) -> str | None:
        requirements = wanted_of(form)
        reason = reason_against_version(form)
        if reason is not None:
            return reason
        try:
            device = self.device(options)
        except DeviceError as error:
            return f"is for a device that is not here ({error.message})"
        if self.is_poisoned(options):
            return f"runs as a whole, and {self.name}.poison looks at every step"
        return requirements.reason_against(device.facts, self._made(device)[0].level.name)

    def unpack(self, form: Json, blobs: Blobs, options: Mapping[str, Any]) -> Unpack:
        return DevicePackage.read(form, blobs, self.device(options)).program

    def devices(self) -> list[str]:
        return [device.facts.name for device in self.found({})]

    def _made(self, device: Device) -> tuple[Language, KernelTable]:
        """The language and the kernel table of a device."""
        with self._lock:
            if device not in self._tables:
                language = self.language(device)
                device.rearrange = Rearranger(device, language)

                def fill(table: KernelTable) -> None:
                    rows = DeviceTable(self.name, plugin=self.name)
                    self.rows(rows, language)
                    table.merge(rows)

                self._tables[device] = language, KernelTable(self.name, plugin=self.name, fill=fill)
            return self._tables[device]


def refusing(target: str) -> Callable[[], Driver]:
    """Return an opener for an absent device, which raises."""

    def open() -> Driver:
        raise DeviceUnavailableError(
            f"{target}:{ABSENT}: programs for a device that is not here are printed, and do not run",
            hint=f'rlx.compile(…, target="{target}") runs them where there is one',
        )

    return open


def expect_device(target: Target) -> Device:
    assert target.device is not None, "targets of a device's backend have one"
    return target.device


def adopted(row: Kernel) -> Kernel | None:
    """Return the row of another package as this target uses it: without an emitter it runs on the host, whatever its tier was."""
    if emitter_of(row.run) is None:
        return evolve(row, tier=TIERS[-1])
    return evolve(row, tier=row.tier or GENERATED)
