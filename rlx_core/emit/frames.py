"""Frames: the memory of one run on a device and its launches, made once and used by every run after.

A frame has an arena, room for inputs that come from the host and outputs that go there, and a launch for every call of every
step, with its arguments set. A run that brings other memory, an input that lies on the device already, say, changes those
arguments alone. All work on a device happens in one order, so the next run may take a frame as soon as the one before has asked
for everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from attrs import field

from rlx_core.codegen.gpu.faults import SITE_WORDS, first_error
from rlx_core.device.array import DeviceArray
from rlx_core.device.device import Device
from rlx_core.device.driver import At, Driver, Whole
from rlx_core.device.pool import Block
from rlx_core.emit.emitters import Call
from rlx_core.emit.modules import Modules
from rlx_core.emit.places import ARENA, CONSTANTS, STATUS, WORKSPACE, Places, Space, Spot, aligned
from rlx_core.emit.recordings import Recordings
from rlx_core.emit.steps import Emissions, is_empty, roomy
from rlx_core.ir.lir import Lir, Step
from rlx_core.ir.types import TensorType
from rlx_core.system.records import define, frozen

__all__ = ["Frame", "Frames", "Part", "PendingRun"]

OWN = (ARENA, WORKSPACE, STATUS, CONSTANTS)
"""Spaces that a frame has for good."""


@frozen(eq=False)
class Part:
    """What is submitted at once: launches that follow one another, or a step that runs on the host."""

    first: int
    end: int
    steps: tuple[int, ...]
    on_host: Step | None = None


@define(eq=False)
class Frame:
    """One run's memory.

    Attributes:
        bound: Space → the buffer that it is now and where it begins in it.
        blocks: The frame's own memory, by the kind of space that lies there.
        launches: One a call, in order.
        version: Which binding of the parameters it has.
        recordings: Part → where its inputs and outputs lay → what the driver recorded then.
    """

    bound: dict[Space, At]
    blocks: dict[str, Block]
    launches: list[Any]
    version: int
    recordings: dict[Part, Recordings] = field(factory=dict)

    def at(self, spot: Spot) -> At:
        """A place in the driver's memory."""
        base = self.bound[spot.space]
        return At(base.buffer, base.offset + spot.offset)


@define(eq=False)
class PendingRun:
    """A run whose results are on the device and that may have failed: its words for faults, looked at when somebody waits.

    Attributes:
        words: A copy of the words that nobody else writes to; `None` once they were looked at, and if there are none.
        after: Runs whose results it was given, until they are known to be right.
    """

    driver: Driver
    faults: Sequence[Any]
    words: Block | None
    after: tuple[PendingRun, ...] = ()
    error: Exception | None = field(default=None)

    @property
    def is_settled(self) -> bool:
        """Whether it is known that nothing went wrong."""
        return self.words is None and self.error is None and not self.after

    @property
    def depth(self) -> int:
        """How many runs, one given the results of the other, nobody has waited for."""
        return 1 + max((run.depth for run in self.after), default=0)

    def settle(self) -> None:
        """Wait, and raise what went wrong in this run or in one that it was given the results of."""
        for run in self.after:
            run.settle()
        self.after = ()
        if self.words is not None:
            found = np.empty(SITE_WORDS * len(self.faults), np.uint32)
            self.driver.read(self.words.buffer, 0, found)
            self.error, self.words = first_error(found, self.faults), None
        if self.error is not None:
            raise self.error


class Frames:
    """The frames of a program, and how its steps follow one another.

    Args:
        lir: The plan.
        device: What it runs on.
        emissions: What its steps become.
        modules: Their functions.
        is_single: Whether every step is submitted by itself, to look at memory or at the clock in between.
    """

    def __init__(self, lir: Lir, device: Device, emissions: Emissions, modules: Modules, *, is_single: bool) -> None:
        self.lir, self.device = lir, device
        self.places = Places(lir)
        self._emissions, self._modules = emissions, modules
        self.faults = [
            (number, fault) for number, each in emissions.steps.items() for call in each.calls for fault in call.faults
        ]
        self.parts = tuple(self._parts(is_single))
        alignment = max(lir.alignment, device.facts.alignment)
        self.inputs = _laid_out([e.type for e in lir.manifest.inputs], alignment)
        self.outputs = _laid_out([v.type for v in self.places.owned], alignment)
        self._patches: dict[Space, list[tuple[int, int, int]]] = defaultdict(list)
        self.used = self._used()
        self._moving = [space for space in self._patches if space.kind in ("input", "own")]
        self._free: list[Frame] = []

    def sizes(self) -> str:
        """The memory of a run, for errors."""
        needed = {
            "arena": self.lir.arena_nbytes,
            "workspace": self._emissions.workspace,
            "inputs": self.inputs[1],
            "outputs": self.outputs[1],
            "parameters": sum(v.type.static_nbytes for v in self.lir.graph.params),
            "constants": self.places.constants_nbytes,
        }
        return ", ".join(f"{what} {nbytes}" for what, nbytes in needed.items() if nbytes) + " bytes"

    @property
    def status_nbytes(self) -> int:
        """The bytes of the words for faults."""
        return 4 * SITE_WORDS * len(self.faults)

    # ----------------------------------------------------------------------------------------- runs

    def take(self, version: int, params: Mapping[Space, DeviceArray], constants: Block | None) -> Frame:
        """A frame with a binding of the parameters; those of an earlier one are dropped."""
        while True:
            try:
                frame = self._free.pop()  # no two threads get one
            except IndexError:
                return self._new(version, params, constants)
            if frame.version == version:
                return frame

    def give_back(self, frame: Frame) -> None:
        """Return a frame whose run has asked for everything."""
        self._free.append(frame)

    def let_go(self) -> None:
        """Forget the frames that no run has; their memory goes back to the pool."""
        while self._free:
            try:
                self._free.pop()
            except IndexError:  # a run has taken it
                return

    def bind(self, frame: Frame, space: Space, at: At) -> None:
        """Move a space to another address and update the arguments of the launches that use it."""
        bound = frame.bound.get(space)
        # Buffers are compared by identity: `==` of a driver's buffers may compare their contents, as it does for bytearrays.
        if bound is not None and bound.buffer is at.buffer and bound.offset == at.offset:
            return
        frame.bound[space] = at
        buffer, base = at
        set_argument, launches = self.device.driver.set_argument, frame.launches
        for launch, argument, offset in self._patches.get(space, ()):
            set_argument(launches[launch], argument, At(buffer, base + offset))

    def ready(self, frame: Frame, part: Part) -> Sequence[Any]:
        """What to submit for a part: its launches, or what they were recorded as when everything lay where it lies now."""
        launches = frame.launches[part.first : part.end]
        if not self.device.driver.can_record or len(launches) == 1:
            return launches
        if part not in frame.recordings:
            frame.recordings[part] = Recordings(self.device.driver)
        address = self.device.driver.address
        return frame.recordings[part].of(tuple([address(frame.bound[space]) for space in self._moving]), launches)

    def stage(self, frame: Frame, space: Space) -> None:
        """Have an input or an output lie in the frame's own room for what is on the host."""
        self.bind(frame, space, self._staged(frame, space))

    def _staged(self, frame: Frame, space: Space) -> At:
        what, (offsets, nbytes) = ("inputs", self.inputs) if space.kind == "input" else ("outputs", self.outputs)
        if space.kind not in frame.blocks:
            frame.blocks[space.kind] = self.device.block(nbytes, f"the {what} of a run")
        return At(frame.blocks[space.kind].buffer, offsets[space.number])

    # -------------------------------------------------------------------------------------- building

    def _new(self, version: int, params: Mapping[Space, DeviceArray], constants: Block | None) -> Frame:
        device, lir, emissions = self.device, self.lir, self._emissions
        device.pool.held_by(self)
        blocks: dict[str, Block] = {}
        if lir.arena_nbytes:
            blocks[ARENA.kind] = device.block(lir.arena_nbytes, "an arena")
        if emissions.workspace:
            blocks[WORKSPACE.kind] = device.block(emissions.workspace, "a workspace")
        if self.faults:
            status = blocks[STATUS.kind] = device.block(self.status_nbytes, "the words for faults", is_apart=True)
            device.driver.fill(status.buffer, 0, self.status_nbytes, 0xFF)
        if constants is not None:
            blocks[CONSTANTS.kind] = constants
        bound = {space: At(blocks[space.kind].buffer, 0) for space in OWN if space.kind in blocks}
        frame = Frame(bound, blocks, [], version)
        frame.bound |= {space: At(array.block.buffer, array.offset) for space, array in params.items()}
        for space in self.used:
            if space.kind in ("input", "own"):
                frame.bound[space] = self._staged(frame, space)
        site = 0
        for number, call in self.calls():
            arguments: list[Any] = [frame.at(spot) for spot in self.spots(number, call)]
            if call.faults:
                arguments += [Whole(frame.bound[STATUS].buffer), np.uint32(site)]
                site += len(call.faults)
            if call.run is not None:
                frame.launches.append(device.driver.routine(call.run, call.places, arguments))
                continue
            module = self._modules.by_function[call.function]
            launch = device.driver.launch(module, call.function, call.groups, call.group_size, arguments)
            if call.dynamic_nbytes:
                device.driver.share(launch, call.dynamic_nbytes)
            frame.launches.append(launch)
        return frame

    def _parts(self, is_single: bool) -> Any:
        """Maximal runs of launches, and the steps between them that the host runs, or a library that may wait."""
        place = first = 0
        steps: list[int] = []
        for number, step in enumerate(self.lir.steps):
            emitted = self._emissions.steps.get(number)
            is_apart = is_single or emitted is None or emitted.may_wait
            if place > first and is_apart:
                yield Part(first, place, tuple(steps))
                first, steps = place, []
            if emitted is not None:
                place += len(emitted.calls)
                steps.append(number)
            if place > first and is_apart:
                yield Part(first, place, tuple(steps))
                first, steps = place, []
            if emitted is None and not is_empty(step):
                yield Part(place, place, (number,), step)
        if place > first:
            yield Part(first, place, tuple(steps))

    def calls(self) -> Iterator[tuple[int, Call]]:
        """The number of a step, and each of its calls."""
        return ((number, call) for number, emitted in self._emissions.steps.items() for call in emitted.calls)

    def spots(self, number: int, call: Call) -> list[Spot]:
        """Where the buffers of a step's call lie."""
        node = self.lir.steps[number].node
        values = (*node.operands, *node.results)
        found = []
        workspaces = accumulate(map(roomy, self._emissions.steps[number].workspaces), initial=0)
        rooms = [Spot(WORKSPACE, offset, ()) for offset in workspaces]
        for buffer in call.buffers:
            if buffer >= len(values):
                found.append(rooms[buffer - len(values)])
                continue
            value = values[buffer]
            assert value is not None, "a kernel is given only operands that are there"
            # What has no elements lies nowhere and is never read; it is passed as the first result that has some.
            there = value if value.type.size else next(v for v in node.results if v.type.size)
            found.append(self.places.of(there))
        return found

    def _used(self) -> frozenset[Space]:
        """The spaces that launches touch; on the way, where each of them is an argument."""
        found: set[Space] = set()
        for launch, (number, call) in enumerate(self.calls()):
            for argument, spot in enumerate(self.spots(number, call)):
                found.add(spot.space)
                self._patches[spot.space].append((launch, argument, spot.offset))
        return frozenset(found)


def _laid_out(types: Sequence[TensorType], alignment: int) -> tuple[list[int], int]:
    """Where arrays of these types begin, one after the other, and the bytes of all."""
    sizes = [aligned(t.static_nbytes, alignment) for t in types]
    *starts, end = accumulate(sizes, initial=0)
    return starts, end
