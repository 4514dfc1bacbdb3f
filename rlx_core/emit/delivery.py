"""How the outputs of a run reach the caller: as NumPy arrays, or as arrays on the device.

A plan says of each output whether it is a buffer of its own, a copy, or the buffer of something donated. On the device the
first is handed over as it lies; a copy is one there; and a donated array is written where it lies and given back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field

from rlx_core.device.array import DeviceArray, Unsettled
from rlx_core.device.device import Device
from rlx_core.device.driver import At
from rlx_core.device.pool import Block
from rlx_core.emit.frames import Frame, Frames
from rlx_core.emit.host_steps import value_on_host
from rlx_core.emit.places import Space
from rlx_core.ir.graph import Value
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.select.backend import Outputs
from rlx_core.system.records import frozen

__all__ = ["Delivery", "Rooms"]


@frozen(eq=False)
class Rooms:
    """Memory on the device for the outputs of a run, taken before it begins.

    Attributes:
        owned: For the buffers that are handed over as they are.
        copies: For the outputs that are copied, by number.
    """

    owned: dict[Space, Block] = field(factory=dict)
    copies: dict[int, Block] = field(factory=dict)


class Delivery:
    """The outputs of a program.

    Args:
        lir: The plan.
        device: Where it runs.
        frames: The memory of its runs.
    """

    def __init__(self, lir: Lir, device: Device, frames: Frames) -> None:
        self._lir, self._device, self._frames = lir, device, frames
        self._outputs = list(zip(lir.graph.outputs, lir.deliveries, strict=True))
        self._inputs = {entry.value: number for number, entry in enumerate(lir.manifest.inputs)}
        self._params = dict(zip(lir.graph.params, frames.places.params, strict=True))
        self._donated = [n for n, e in enumerate(lir.manifest.inputs) if e.is_donated]
        places = frames.places
        there = [(number, value) for number, value in enumerate(lir.graph.outputs) if value.type.size]
        assert all(places.is_dense(value) for _, value in there), "callers read outputs densely, and the plan knows it"
        self._spots = {number: places.of(value) for number, value in there}
        self._owned = [(Space("own", n), v.type.static_nbytes) for n, v in enumerate(places.owned) if v.type.size]
        self._copied = [(n, v.type.static_nbytes) for n, v in there if lir.deliveries[n].kind != "own"]

    def own_donations(self, inputs: Sequence[Any], params: Iterable[DeviceArray]) -> Sequence[Any]:
        """The inputs, with a copy of each donated one on the device that shares its memory with another array of the run."""
        given = [x for x in inputs if isinstance(x, DeviceArray)]
        if not self._donated or not given:
            return inputs
        blocks = [x.block for x in (*given, *params)]
        ready = list(inputs)
        for number in self._donated:
            array = inputs[number]
            if isinstance(array, DeviceArray) and sum(block is array.block for block in blocks) > 1:
                ready[number] = array.copy()
        return ready

    def begin(self, frame: Frame, outputs: Outputs) -> Rooms:
        """Before the steps: room for what is handed over, on the device each a block of its own."""
        rooms = Rooms()
        if outputs == "host":
            for space, _ in self._owned:
                self._frames.stage(frame, space)
            return rooms
        for space, nbytes in self._owned:
            block = rooms.owned[space] = self._device.block(nbytes, "an output")
            self._frames.bind(frame, space, At(block.buffer, 0))
        for number, nbytes in self._copied:
            rooms.copies[number] = self._device.block(nbytes, "an output")
        return rooms

    def finish(
        self,
        frame: Frame,
        inputs: Sequence[Any],
        params: Mapping[str, Any],
        rooms: Rooms,
        outputs: Outputs,
        run: Unsettled | None,
    ) -> tuple[list[Any], int]:
        """The outputs, and the bytes that were read from the device for them."""
        if outputs == "host":
            return self._to_host(frame, inputs, params)
        results = [self._on_device(frame, number, rooms, run) for number in range(len(self._outputs))]
        for number, (value, delivery) in enumerate(self._outputs):
            if delivery.kind == "donor" and delivery.donor is not None and value.type.size:
                results[number] = self._given_back(frame, delivery.donor, results[number], inputs, run)
        return results, 0

    # ------------------------------------------------------------------------------------- to the host

    def _to_host(self, frame: Frame, inputs: Sequence[Any], params: Mapping[str, Any]) -> tuple[list[Any], int]:
        places, nread = self._frames.places, 0
        results: list[Any] = []
        for value, _ in self._outputs:
            array, nbytes = self._read(frame, value)
            results.append(array)
            nread += nbytes
        for number, (value, delivery) in enumerate(self._outputs):
            if delivery.kind == "donor" and delivery.donor is not None and value.type.size:
                donor = self._donor(delivery.donor, inputs, params)
                is_staged = delivery.donor in self._inputs and isinstance(donor, np.ndarray)
                if not is_staged and places.of(value) != places.of(delivery.donor):
                    self._store(frame, delivery.donor, results[number])
                if isinstance(donor, np.ndarray):
                    np.copyto(donor, results[number])
                    results[number] = donor
        return results, nread

    def _read(self, frame: Frame, value: Value) -> tuple[np.ndarray, int]:
        places = self._frames.places

        def locate(wanted: Value) -> At:
            return frame.at(places.of(wanted))

        return value_on_host(value, places, locate, {}, self._device.driver)

    def _donor(self, donor: Value, inputs: Sequence[Any], params: Mapping[str, Any]) -> Any:
        if donor in self._inputs:
            return inputs[self._inputs[donor]]
        return params[self._params[donor]]

    # ----------------------------------------------------------------------------------- on the device

    def _on_device(self, frame: Frame, number: int, rooms: Rooms, run: Unsettled | None) -> DeviceArray:
        """An output in memory of the caller's own."""
        value, delivery = self._outputs[number]
        spot = self._spots.get(number)
        if spot is None:  # it has no elements
            return self._device.empty(value.type, "an output")
        if delivery.kind == "own":
            return DeviceArray(self._device, rooms.owned[spot.space], spot.offset, value.type, run)
        at, block = frame.at(spot), rooms.copies[number]
        self._device.driver.copy(at.buffer, at.offset, block.buffer, 0, value.type.static_nbytes)
        return DeviceArray(self._device, block, 0, value.type, run)

    def _given_back(
        self, frame: Frame, donor: Value, result: DeviceArray, inputs: Sequence[Any], run: Unsettled | None
    ) -> DeviceArray:
        """What was donated with the next value in it; a donated array that came from the host stays there, as it was."""
        given = inputs[self._inputs[donor]] if donor in self._inputs else None
        if donor in self._inputs and not isinstance(given, DeviceArray):
            return result
        at = frame.bound[self._frames.places.of(donor).space]
        self._device.driver.copy(result.block.buffer, result.offset, at.buffer, at.offset, result.nbytes)
        if given is None:
            return result
        return DeviceArray(self._device, given.block, given.offset, result.type, run)

    def _store(self, frame: Frame, donor: Value, array: np.ndarray) -> None:
        """Write the next value of what was donated to where it lies on the device."""
        at = frame.bound[self._frames.places.of(donor).space]
        self._device.driver.write(at.buffer, at.offset, np.ascontiguousarray(array), waits=True)
