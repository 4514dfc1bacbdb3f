"""Writing a device's programs: their functions as a few modules, and each program as a form that names what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import define, field, frozen

from rlx_core.device.array import DeviceArray
from rlx_core.device.device import Device
from rlx_core.emit.code import functions_of
from rlx_core.emit.emitters import Language
from rlx_core.emit.frames import Frames
from rlx_core.emit.modules import MOST_AT_ONCE, Modules, dealt
from rlx_core.emit.packaged.fitting import Wanted
from rlx_core.emit.packaged.form import (
    ARENA,
    FIRST_BUFFER,
    WORKSPACE,
    PackedCall,
    PackedFault,
    PackedOutput,
    PackedProgram,
)
from rlx_core.emit.places import Places, Space, Spot
from rlx_core.emit.steps import Emissions, emissions, is_empty
from rlx_core.ir.forms import Json
from rlx_core.ir.graph import Constant
from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.select.backend import Bindings
from rlx_core.pipeline.select.kernels import KernelTable
from rlx_core.pipeline.select.packages import Keep, PackedCode, expect_packable

__all__ = ["DeviceWriter"]


@frozen
class DeviceWriter:
    """What programs for one device have in common.

    Attributes:
        device: What they are for.
        features: What of the device's interface its kernels may use.
        builds: Whether the device is here, and its driver's compiler with it: its binaries are written too.
    """

    device: Device
    kernels: KernelTable
    language: Language
    keep: Keep
    features: frozenset[str]
    builds: bool

    def packed(self, programs: Sequence[tuple[Lir, Bindings]]) -> PackedCode:
        """Programs with what they are bound to.

        Raises:
            NoKernelError, ConfigError: See `expect_packable`.
            KernelBuildError: The device's compiler refuses a function.
        """
        found = [self._program(lir, bindings) for lir, bindings in programs]
        facts, level = self.device.facts, self.language.level
        dtypes = {v.dtype.name for lir, _ in programs for node in lir.graph.nodes for v in node.results}
        form = {
            "wanted": Wanted.of(facts, level.name, dtypes, self.features, found).to_json(),
            "modules": self._modules([lir for lir, _ in programs]),
            "programs": [each.to_json() for each in found],
        }
        made_for = f"made on {facts.name}" if self.builds else f"for {facts.name}"
        return PackedCode(level.name, f"{level.summary}, {made_for}", form)

    def _modules(self, lirs: Sequence[Lir]) -> Json:
        functions = functions_of(lirs, self.kernels)
        parts = dealt(functions, len(functions) if self.language.has_one_entry else MOST_AT_ONCE) if functions else []
        found = []
        for part in parts:
            source = self.language.module(part)
            binary = None
            if self.builds:
                driver = self.device.driver
                binary = driver.binary_of(driver.build(source))
            found.append(
                {
                    "functions": [function.name for function in part],
                    "source": self.keep(_bytes(source.encode())),
                    "binary": None if binary is None else self.keep(_bytes(binary)),
                }
            )
        return found

    def _program(self, lir: Lir, bindings: Bindings) -> PackedProgram:
        made = emissions(lir, self.kernels)
        expect_packable(lir, lambda number, step: reason_against(made, number, step))
        frames = Frames(lir, self.device, made, Modules({}, is_cached=True), is_single=False)
        buffers = _Buffers(lir, bindings, self.keep)
        calls = [(number, call, frames.spots(number, call)) for number, call in frames.calls()]
        outputs = [(v.type, frames.places.of(v) if v.type.size else None) for v in lir.graph.outputs]
        spots = [spot for _, _, spots in calls for spot in spots] + [spot for _, spot in outputs if spot is not None]
        for spot in spots:
            buffers.see(spot.space)
        return PackedProgram(
            arena=lir.arena_nbytes,
            workspace=made.workspace,
            buffers=tuple(buffers.blobs),
            inputs=tuple(entry.type for entry in lir.manifest.inputs),
            made=tuple(value.type.static_nbytes for value in frames.places.owned),
            outputs=tuple(
                PackedOutput(type, *(buffers.place(spot) if spot is not None else (ARENA, 0))) for type, spot in outputs
            ),
            calls=tuple(
                PackedCall(
                    call.function,
                    call.groups,
                    call.group_size,
                    tuple(map(buffers.place, spots)),
                    len(call.faults),
                    call.dynamic_nbytes,
                )
                for _, call, spots in calls
            ),
            faults=tuple(
                _fault(fault.message, lir.steps[number]) for number, call, _ in calls for fault in call.faults
            ),
        )


def reason_against(made: Emissions, number: int, step: Step) -> str | None:
    """Why a step is not launches alone; `None` if it is."""
    emitted = made.steps.get(number)
    if emitted is None:
        if is_empty(step):
            return None
        return f"the host drives {step.kernel}" if step.nested else f"{step.kernel} runs on the host"
    return f"{step.kernel} calls the device's library" if emitted.is_library else None


@define(eq=False)
class _Buffers:
    """The places of a program as they are found."""

    lir: Lir
    bindings: Bindings
    keep: Keep
    blobs: list[int] = field(factory=list)
    _numbers: dict[Space, int] = field(factory=dict)

    def see(self, space: Space) -> None:
        """Keep what lies in a space and never changes."""
        if space.kind in ("param", "constants") and space not in self._numbers:
            self._numbers[space] = FIRST_BUFFER + len(self.blobs)
            self.blobs.append(self.keep(self._content(space)))

    def place(self, spot: Spot) -> tuple[int, int]:
        """The place and the byte; every space was seen before."""
        first_input = FIRST_BUFFER + len(self.blobs)
        match spot.space.kind:
            case "arena":
                return ARENA, spot.offset
            case "workspace":
                return WORKSPACE, spot.offset
            case "input":
                return first_input + spot.space.number, spot.offset
            case "own":
                return first_input + len(self.lir.manifest.inputs) + spot.space.number, spot.offset
            case _:
                return self._numbers[spot.space], spot.offset

    def _content(self, space: Space) -> np.ndarray:
        places = Places(self.lir)
        if space.kind == "param":
            bound: Any = self.bindings[places.params[space.number]]
            found: np.ndarray = bound.to_host() if isinstance(bound, DeviceArray) else bound
            return found
        values = {n.result: n.op.value.array for n in self.lir.graph.nodes if isinstance(n.op, Constant)}
        constants = np.zeros(places.constants_nbytes, np.uint8)
        for value, offset in places.constants.items():
            raw = np.ascontiguousarray(values[value]).reshape(-1).view(np.uint8)
            constants[offset : offset + raw.size] = raw
        return constants


def _fault(message: str, step: Step) -> PackedFault:
    source = step.node.origin.source
    return PackedFault(message, step.node.label, None if source is None else (source.file, source.line))


def _bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)
