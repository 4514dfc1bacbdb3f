"""The interface between core and backend: a target described as data, and a compiler from LIR to an executable program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol

import numpy as np
from attrs import asdict, field

from rlx_core.errors import ConfigError, DeviceError, Fact, PlaceError, RlxError
from rlx_core.ir.dtypes import DType
from rlx_core.ir.forms import Json
from rlx_core.ir.graph import Node
from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.kernels import HOST_KERNEL, Kernel, KernelTable, matches
from rlx_core.public import lazy_names, listed
from rlx_core.system.locks import Lock
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.device.device import Device
    from rlx_core.ir.element_functions import ElementFunctions
    from rlx_core.pipeline.packages import Blobs, Keep, PackedCode, Unpack, expect_packable
    from rlx_core.tuning.tuner import TunedProblem
else:  # few programs come from a package or are written to one
    __getattr__, _, _ = lazy_names(
        __name__, listed({"rlx_core.pipeline.packages": "Blobs Keep PackedCode Unpack expect_packable"})
    )

__all__ = [
    "ABSENT",
    "Backend",
    "Blobs",
    "Keep",
    "Level",
    "Listing",
    "ObjectStore",
    "Outline",
    "Outputs",
    "PackedCode",
    "Params",
    "Program",
    "Target",
    "Traffic",
    "Unpack",
    "at_step",
    "expect_packable",
]

ABSENT: Final = "absent"
"""The device number of a target without a device, which only generates code: `gpu:absent`."""

Outputs = Literal["host", "device"]
"""The caller's choice of the location of outputs."""

_versions: Final = count(1)


class Params(dict[str, Any]):
    """One version of the parameters: checked or prepared arrays by name, and their copies in programs.

    A weight has five stages. It is *given* by the caller; *checked* against its declared type, in the caller's memory; *prepared*
    by the plan's prepare program, which folds what depends on parameters alone; *bound* to a buffer in the memory of a program;
    and *packed*, in the arrangement that a kernel reads.

    Several programs may be bound to the same object, one for each combination of sizes. What one of them derives from a value
    alone is cached in one of the three mappings, where the others reuse it.

    Attributes:
        immutable: The names of the arrays that are read-only (`rlx_core.ir.array.is_immutable`), whose packed
            copies several executables share.
        version: Number of the version, unique in the process; prepared parameters have that of the checked ones.
        prepared: Of checked parameters: the prepared ones, once computed; the same for all sizes.
        on_device: Copies on devices, by the names of the device and of the parameter.
        on_host: Copies on the host of arrays on a device, by name.
        packed: Packed operands, by keys of the backend.
        recomputed: Of prepared parameters: by name, functions that compute an array again, if its memory is its own.
        transferred: Bytes copied between the host and a device for these parameters, until a program has reported them.
    """

    def __init__(self, arrays: Mapping[str, Any], immutable: Collection[str] = (), version: int | None = None) -> None:
        super().__init__(arrays)
        self.immutable = frozenset(immutable)
        self.version = next(_versions) if version is None else version
        self.prepared: Params | None = None
        self.on_device: dict[tuple[str, str], Any] = {}
        self.on_host: dict[str, np.ndarray] = {}
        self.packed: dict[Hashable, Any] = {}
        self.recomputed: Mapping[str, Callable[[], np.ndarray]] = {}
        self.transferred = 0
        self._read: set[str] = set()
        self._freed: set[str] = set()

    memory_lock: ClassVar[Lock] = Lock("the memory of prepared parameters")
    """Acquired to pack parameters that may be freed."""

    def use(self, name: str) -> Any:
        """Return an array that a program reads from now on: it is computed again if its memory was freed."""
        if name in self.recomputed:
            with self.memory_lock:
                self._read.add(name)
                self.restore(name)
        return self[name]

    def restore(self, name: str) -> None:
        """Compute an array again if its memory was freed; the caller has the lock."""
        if name in self._freed:
            np.copyto(self[name], self.recomputed[name]())
            self._freed.discard(name)

    def free(self, name: str) -> None:
        """Free the memory of an array that packed copies replace, if no program reads it; the caller has the lock."""
        if name in self.recomputed and name not in self._read and name not in self._freed:
            from rlx_core.ir.mapped_pages import free_owned_pages  # here, because few weights are computed

            if free_owned_pages(self[name]):
                self._freed.add(name)


@frozen(eq=False)
class Target:
    """The capabilities of one device and its requirements on programs.

    Attributes:
        name: The device name users write (`target="..."`).
        kernels: Everything it has a kernel for; the claimed ops are read off this table.
        alignment: Bytes that every arena slot's offset must be a multiple of.
        accepts_views: Whether programs may hold strided views; if not, transposes and broadcasts copy.
        region_limits: The largest fused region or loop as (element-wise ops, inputs); `None` is unlimited.
        properties: Device properties that change generated code; part of the fingerprint.
        tiers: The tiers of kernels, best first: `("native", "library", "numpy")`; empty if there is but one place, and
            no choice of tiers. A row of `kernels` names its tier; rows without one, such as rows of other plugins, are on the
            last one, which is the fallback of programs. One between is the best place for the rows that name it.
        adopt: Converts a row of another plugin for this target: to itself, another row, or `None` if it is unusable. Without it
            no such row is on the best of several tiers, which the target's own compiler generates.
        device: The device whose memory its programs work in; `None` is the host's.
        fast_products: Dtypes of integers whose products, with sums in i32, take less time than those of f32 of the same sizes;
            passes that narrow products convert only to these.
        element_functions: The functions of its code for element-wise ops, with which eager calls and constant folding compute the
            same bits as its programs; without them they use the NumPy references.
        allow_host: Ops, or patterns, that may run on the host if they have no kernel; set by the configuration.
    """

    name: str
    kernels: KernelTable
    alignment: int = 64
    accepts_views: bool = True
    region_limits: tuple[int | None, int | None] = (None, None)
    properties: Mapping[str, str] = field(factory=dict)
    tiers: tuple[str, ...] = ()
    adopt: Callable[[Kernel], Kernel | None] | None = field(default=None, eq=False)
    device: Device | None = field(default=None, eq=False)
    element_functions: ElementFunctions | None = field(default=None, eq=False)
    allow_host: tuple[str, ...] = ()
    fast_products: tuple[DType, ...] = ()

    def kernel_for(self, node: Node) -> Kernel | None:
        """Return the kernel of a node that is not rewritten: the first that takes it, else the host if required or allowed."""
        kernel = self.kernels.choose(node).kernel
        if kernel is None and (node.op.calls_host or matches(node.op, self.allow_host)):
            return HOST_KERNEL if node.op.reference is not None else None
        return kernel

    def tier(self, kernel: Kernel) -> str | None:
        """Return the tier of a kernel; `None` for a target that has no tiers."""
        if not self.tiers:
            return None
        return kernel.tier if kernel.tier in self.tiers else self.tiers[-1]

    def falls_back(self, tier: str | None) -> bool:
        """Return whether steps on a tier run there for want of a better kernel: on the last one of several."""
        return len(self.tiers) > 1 and tier == self.tiers[-1]


@frozen
class Level:
    """One of the languages that a program is lowered to for a target; `rlx compile --emit` prints it.

    Attributes:
        name: Its name for users.
        summary: A short description.
        comment: The start of a comment in it.
    """

    name: str
    summary: str
    comment: str = "#"


@frozen
class Listing:
    """The text of steps of a plan at one level; steps that share one function share a listing.

    Attributes:
        steps: Numbers of steps.
        text: In the language of the level; empty if these steps have nothing there.
        note: Further information: the reason for missing text, the chosen tiles.
    """

    steps: tuple[int, ...]
    text: str
    note: str = ""


@frozen
class Traffic:
    """Bytes transferred between the host and a device.

    Attributes:
        bound: When parameters were bound.
        inputs, outputs: In the latest run.
        steps: In the latest run, for steps that ran on the host: read and written together.
    """

    bound: int = 0
    inputs: int = 0
    outputs: int = 0
    steps: int = 0

    def to_json(self) -> dict[str, int]:
        """The numbers, with stable keys."""
        return asdict(self)

    def __str__(self) -> str:
        summary = f"crossed: {self.bound} B when parameters were bound; a call {self.inputs} B in, {self.outputs} B out"
        return f"{summary}, {self.steps} B for steps on the host" if self.steps else summary


class Program(ABC):
    """A compiled LIR on a device. It has no parameters until they are bound.

    Runs of one program are safe from several threads at once: each run takes a separate arena or waits for one.
    """

    @abstractmethod
    def bind(self, params: Mapping[str, np.ndarray]) -> None:
        """Bind the prepared parameters, the values of `lir.graph`'s params; they are not copied when usable as is.

        They are `Params` where other programs may be bound to the same ones.
        """

    @abstractmethod
    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run once on arrays in manifest order, already checked against their types; results are the caller's own."""

    def run_to(self, inputs: Sequence[Any], outputs: Outputs | None) -> list[Any]:
        """Run once, with the outputs where the caller wants them.

        Args:
            inputs: See `run`; on a target with a device each may be a `DeviceArray` there.
            outputs: `None` is the device if an input lies there, else the host.

        Raises:
            PlaceError: There is no device for outputs to lie on.
        """
        if outputs == "device":
            raise PlaceError('run: outputs="device", and the program runs in the host\'s memory')
        return self.run(inputs)

    @property
    def traffic(self) -> Traffic | None:
        """Bytes transferred between the host and the device; `None` for programs in the host's memory."""
        return None

    def entry(self, name: str) -> Callable[..., Any] | None:
        """Return a fast path for plain calls, or `None` if the program has none, which is always correct.

        It takes the inputs as positional arguments, each a `HostArray`, a NumPy array or one of the device's, and returns the
        tuple of outputs as `run` would, but each NumPy array in a `HostArray`: the caller's own, faults raised. It must check
        the arguments itself and not assume that they were checked: any argument that is not an array that `run` would take as
        it is (another class, dtype, shape or layout; donated and read-only, or sharing bytes with another argument) or that
        cannot be served now, and any call while runs are observed (`rlx_core.system.context.watchers` is not 0), makes it
        return `NotImplemented` before any side effect. The caller then checks and runs. It is for the parameters bound
        when it was made; after `bind`, request another.

        A `HostArray` that is a donated input is donated by the call, all of them or none; `NotImplemented` if its elements are
        referred to from elsewhere. A NumPy array that is one is overwritten: the caller gives it away.

        Args:
            name: The program's, for the errors of donated arrays.
        """
        return None

    @property
    def reason_without_entry(self) -> str | None:
        """The reason why `entry` returns `None`, if other programs of the target have an entry; shown in reports."""
        return None

    @property
    def code(self) -> object | None:
        """The code from which `Backend.another` creates programs of the same plan; immutable. `None` if it cannot be shared."""
        return None

    @property
    def code_origin(self) -> str | None:
        """Where the machine code came from, "compiled" or "cached"; `None` if the program has none."""
        return None

    @property
    def tuned(self) -> Sequence[TunedProblem]:
        """The problems with several schedules, each with the one of this program; empty unless tuning is enabled."""
        return ()

    @abstractmethod
    def clone(self) -> Program:
        """Return a program that shares immutable weights and no mutable state."""


@frozen(eq=False)
class Outline:
    """A program of a template as data.

    Attributes:
        numbers: The parts that depend on sizes: records, tuples, lists and dicts.
        build: Makes the program for other sizes from such parts, and from a function that returns its plan if it is needed.
        is_current: Whether programs are still built under the same conditions.
    """

    numbers: Any
    build: Callable[[Any, Callable[[], Lir]], Program]
    is_current: Callable[[], bool]


class ObjectStore(Protocol):
    """A backend's cache between processes; `rlx_core.system.disk.DiskCache` is one.

    Keys are hex digests of everything that determines the object. No method raises for an error of the file system.
    """

    def get(self, key: str) -> bytes | None:
        """Return the undamaged bytes that are stored under `key`, or `None`."""

    def put(self, key: str, payload: bytes) -> bool:
        """Store `payload` under `key`; whether that worked."""

    def drop(self, key: str, reason: str) -> None:
        """Remove an entry that proved useless."""


class Backend(ABC):
    """A target and its compiler. A plugin offers one through the `rlx_backends` hook.

    Attributes:
        has_outlines: Whether `outline` is implemented.
    """

    has_outlines: ClassVar[bool] = False

    if TYPE_CHECKING:  # a class attribute in most backends: to a type checker a property could not become one
        target: Target
    else:

        @property
        @abstractmethod
        def target(self) -> Target:
            """The capabilities of the device; read before every compilation, never mutated by it."""

    def absent(self) -> Backend | None:
        """The same backend for a device that is not here: it plans programs and prints them, and its programs do not run.
        `None` where there is no such thing."""
        return None

    def on(self, number: int) -> Backend:
        """Return the same backend for another of its devices; a target's name alone means the first.

        Raises:
            DeviceError: There is no device of that number.
        """
        if number:
            names = self.devices()
            raise DeviceError(
                f"{self.target.name}:{number}: there {'is' if len(names) == 1 else 'are'} {len(names)}, counted from 0",
                *(Fact(f"{self.target.name}:{i}", name) for i, name in enumerate(names)),
            )
        return self

    def target_for(self, options: Mapping[str, Any]) -> Target:
        """Return the target for the configured values of options; most targets do not depend on any.

        Raises:
            ConfigError: An option has a value that this device cannot meet.
        """
        return self.target

    @abstractmethod
    def compile(self, lir: Lir, target: Target, options: Mapping[str, Any]) -> Program:
        """A program for a planned LIR.

        Args:
            lir: The plan to run; its steps name kernels of `target`.
            target: The target of the plan: this backend's own target with the kernels that other plugins bring for it.
            options: The resolved plan.
        """

    def build(self, lir: Lir, target: Target, options: Mapping[str, Any], objects: ObjectStore | None) -> Program:
        """Return a program like `compile`, with code that may be read from `objects` and stored there.

        Args:
            objects: The configured cache of code, or `None`. A backend that has nothing to keep
                leaves this method as it is.
        """
        return self.compile(lir, target, options)

    def outline(self, lir: Lir, target: Target, options: Mapping[str, Any]) -> Outline | None:
        """Return the program that `build` makes for a bound template as data.

        The sizes may be recorded (`rlx_core.pipeline.recording`), so that nothing that is computed here may be kept elsewhere.

        Returns:
            `None` where programs depend on more than their sizes, which is always correct: each size is then planned.
        """
        return None

    def another(self, lir: Lir, target: Target, options: Mapping[str, Any], code: object) -> Program | None:
        """Return a program like `build`, from the code of a program of an equal plan, maybe traced from other source lines.

        Args:
            lir, target, options: See `compile`.
            code: The `code` of that program.

        Returns:
            `None` where it has to be built again, which is always correct: a build would now give something else.
        """
        return None

    def built_ahead(
        self, lirs: Sequence[Lir], target: Target, options: Mapping[str, Any]
    ) -> AbstractContextManager[None]:
        """Return a context in which programs of these plans reuse code that was built together, which is faster for some
        backends.

        Args:
            lirs: Plans for `target`.
            target, options: See `compile`.
        """
        return nullcontext()

    def expect(self, options: Mapping[str, Any], objects: ObjectStore | None) -> None:
        """Prepare for a program that is about to go through the passes: work that it will need may start in the background.

        Args:
            options: See `target_for`.
            objects: See `build`.
        """
        return

    def levels(self, target: Target) -> tuple[Level, ...]:
        """The languages below the loop language in which `emit` can print a program for `target`, in order."""
        return ()

    def emit(
        self, lir: Lir, target: Target, options: Mapping[str, Any], level: str, steps: Sequence[int]
    ) -> Sequence[Listing]:
        """Return the code of some steps, as `compile` would generate it.

        Args:
            lir, target, options: See `compile`.
            level: The name of one of `levels(target)`.
            steps: The steps to print; each is in one listing of the result.
        """
        raise AssertionError(f"{self.target.name} offers the level {level} and does not print it")

    def pack(
        self, programs: Sequence[tuple[Lir, Params]], target: Target, variant: str | None, keep: Keep
    ) -> PackedCode:
        """Return a package's data of programs and their bindings, so that `unpack` creates them without compiling.

        Args:
            variant: The machines of the code; by default this one.

        Raises:
            ConfigError: There is no such variant, or packages hold no code for this target.
            NoKernelError: A program needs more than code that a package can hold.
        """
        raise ConfigError(
            f"package: {target.name} has no code that a package could hold",
            hint="package it for cpu or a GPU, or use rlx.save",
        )

    def reason_against_code(self, form: Json, options: Mapping[str, Any]) -> str | None:
        """Return the reason why the form of `pack` cannot be used here, or under some options, as a sentence's end, or `None`.

        Raises:
            FormatError: It is nothing that `pack` wrote.
        """
        return f"is for {self.target.name}, which reads no packages"

    def reason_against_compiling(self, options: Mapping[str, Any]) -> str | None:
        """Return the reason why a package's own program is not compiled here in place of its code; `None` if it may be."""
        return None

    def unpack(self, form: Json, blobs: Blobs, options: Mapping[str, Any]) -> Unpack:
        """Return a factory of the programs that `pack` wrote, bound and ready.

        Args:
            options: See `target_for`.

        Raises:
            FormatError: The form was not written by `pack`, or a blob is damaged.
        """
        raise AssertionError(f"{self.target.name} packs code and does not unpack it")

    def devices(self) -> list[str]:
        """Human-readable names of the available devices; empty if none is available."""
        return [self.target.name]


def at_step(error: RlxError, step: Step) -> RlxError:
    """An error of a run, with the node that it happened at and the user's line."""
    return error.with_fact(Fact("node", step.node.label, step.node.origin.source))
