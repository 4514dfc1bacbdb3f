"""Running a packaged program on a device: launches that are set once for each frame, made from data alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import define

from rlx_core.codegen.gpu.faults import SITE_WORDS, first_error
from rlx_core.device.device import Device, usable
from rlx_core.device.driver import At, Whole
from rlx_core.device.pool import Block
from rlx_core.emit.packaged.form import ARENA, PackedOutput, PackedProgram
from rlx_core.emit.runs import in_turn
from rlx_core.pipeline.select.backend import Program, Traffic

__all__ = ["PackagedDeviceProgram"]


@define(eq=False)
class Frame:
    """The memory of one run; its launches know where everything lies, and so can be recorded.

    Attributes:
        places: Those that are used.
        status: The words for faults.
        work: What is submitted.
        runs: How often it was.
    """

    places: Mapping[int, Block]
    status: Block | None
    work: Sequence[Any]
    runs: int = 0


class PackagedDeviceProgram(Program):
    """A program that was written to a file with its modules and weights. It takes arrays of the host, and gives such.

    Args:
        form: The program.
        device: Where it runs.
        modules: Function → the driver's module that has it.
        buffers: The weights on the device, by place.
        sizes: The bytes of every place.
    """

    def __init__(
        self,
        form: PackedProgram,
        device: Device,
        modules: Mapping[str, Any],
        buffers: Mapping[int, Block],
        sizes: Sequence[int],
    ) -> None:
        self._form, self._device, self._modules = form, device, modules
        self._buffers, self._sizes = buffers, sizes
        self._used = form.used
        self._frames: list[Frame] = []
        self._traffic = Traffic()

    def bind(self, params: Mapping[str, np.ndarray]) -> None:
        assert not params, "a packaged program has its parameters"

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return in_turn(self._device.pool.turns, self._take, lambda frame: self._finished(frame, inputs))

    @property
    def reason_without_entry(self) -> str:
        return "calls of a packaged program on a device are all checked"

    @property
    def traffic(self) -> Traffic:
        return self._traffic

    @property
    def code_origin(self) -> str:
        return "packaged"

    def clone(self) -> PackagedDeviceProgram:
        return PackagedDeviceProgram(self._form, self._device, self._modules, self._buffers, self._sizes)

    def let_go(self) -> None:
        """Forget the frames that no run has; their memory goes back to the pool."""
        self._frames.clear()

    # -------------------------------------------------------------------------------------- memory

    def _take(self) -> Frame:
        """A frame for a run.

        Raises:
            OutOfMemoryError: The device lacks the room.
        """
        try:
            return self._frames.pop()  # no two threads get one
        except IndexError:
            return self._new()

    def _new(self) -> Frame:
        device, form = self._device, self._form
        device.pool.held_by(self)
        names = {ARENA: "an arena"}
        own = [place for place in sorted(self._used) if place not in self._buffers]
        blocks = {place: device.block(self._sizes[place], names.get(place, "memory of a run")) for place in own}
        places = {**self._buffers, **blocks}
        status = None
        if form.faults:
            nbytes = 4 * SITE_WORDS * len(form.faults)
            status = device.block(nbytes, "the words for faults", is_apart=True)
            device.driver.fill(status.buffer, 0, nbytes, 0xFF)
        return Frame(places, status, self._launches(places, status))

    def _launches(self, places: Mapping[int, Block], status: Block | None) -> list[Any]:
        found, site = [], 0
        for call in self._form.calls:
            arguments: list[Any] = [At(places[place].buffer, offset) for place, offset in call.arguments]
            if call.faults:
                assert status is not None, "a program with faults has words for them"
                arguments += [Whole(status.buffer), np.uint32(site)]
                site += call.faults
            module = self._modules[call.function]
            launch = self._device.driver.launch(module, call.function, call.groups, call.group_size, arguments)
            if call.dynamic_nbytes:
                self._device.driver.share(launch, call.dynamic_nbytes)
            found.append(launch)
        return found

    # ------------------------------------------------------------------------------------- running

    def _finished(self, frame: Frame, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        driver, crossed = self._device.driver, 0
        try:
            for place, array in enumerate(inputs, self._form.first_input):
                if place in self._used and array.size:
                    driver.write(frame.places[place].buffer, 0, usable(array), waits=False)
                    crossed += array.nbytes
            self._submit(frame)
            self._expect_no_fault(frame)
            results = [self._read(frame, output) for output in self._form.outputs]
            nread = sum(array.nbytes for array in results)
            if not nread:
                driver.synchronize()  # the caller's arrays are read until then
        finally:
            self._frames.append(frame)
        self._traffic = Traffic(0, crossed, nread)
        return results

    def _submit(self, frame: Frame) -> None:
        driver = self._device.driver
        frame.runs += 1
        if frame.runs == 2 and driver.can_record and len(frame.work) > 1:
            recording = driver.record(frame.work)
            frame.work = frame.work if recording is None else [recording]
        if frame.work:
            driver.submit(frame.work)

    def _expect_no_fault(self, frame: Frame) -> None:
        if frame.status is None:
            return
        driver, buffer = self._device.driver, frame.status.buffer
        found = np.empty(SITE_WORDS * len(self._form.faults), np.uint32)
        driver.read(buffer, 0, found)
        error = first_error(found, self._form.faults)
        if error is not None:
            driver.fill(buffer, 0, found.nbytes, 0xFF)
            raise error

    def _read(self, frame: Frame, output: PackedOutput) -> np.ndarray:
        shape, dtype = output.type.static_shape, output.type.dtype.numpy
        if not output.type.size:
            return np.empty(shape, dtype)
        raw = np.empty(output.type.static_nbytes, np.uint8)
        self._device.driver.read(frame.places[output.place].buffer, output.offset, raw)
        return raw.view(dtype).reshape(shape)
