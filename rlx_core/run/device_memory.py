"""A device's memory, as a program uses it: blocks of its pool, arrays that stay there, and copies from and to the host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rlx_core.device.array import DeviceArray
from rlx_core.device.device import Device
from rlx_core.device.driver import At
from rlx_core.errors import OutOfMemoryError
from rlx_core.ir.array import usable
from rlx_core.ir.dtypes import u8
from rlx_core.ir.strides import Strides, dense_strides, extent
from rlx_core.ir.types import TensorType
from rlx_core.run.memory import POISON, Allocation, ProgramMemory, strided
from rlx_core.run.plan import BufferId, ExecutionPlan, Location, PlanLeaf

if TYPE_CHECKING:
    from rlx_core.pipeline.backend import Params
    from rlx_core.run.frames import Frame, Frames

T = TypeVar("T")
R = TypeVar("R")


class DeviceMemory(ProgramMemory):
    """The memory of a device, as one program uses it.

    Args:
        device: The device.
        margin: As in `ProgramMemory`; with one, all blocks of the device's pool are filled with poison when they are allocated.
    """

    def __init__(self, device: Device, margin: int = 0) -> None:
        self.device, self.name, self.margin = device, device.name, margin
        self._starts: dict[str, list[int]] = {}
        if margin:
            device.pool.poison = POISON

    # ----------------------------------------------------------------------------------------- allocation

    def arena(self, nbytes: int, alignment: int) -> Allocation:
        return self._allocation(nbytes, "an arena")

    def place_constants(self, plan: ExecutionPlan, used: Collection[int]) -> dict[int, Allocation]:
        arrays = {number: plan.constants[number] for number in sorted(used) if plan.constants[number].size}
        *starts, end = accumulate((aligned(a.nbytes, plan.alignment) for a in arrays.values()), initial=0)
        if not arrays:
            return {}
        block = self.device.block(end, "the constants of a program")
        placed = {n: Allocation(At(block.buffer, start), block) for n, start in zip(arrays, starts, strict=True)}
        for number, array in arrays.items():
            self.write(placed[number].at, usable(array))
        return placed

    def result(self, type: TensorType) -> DeviceArray:
        block = self.device.block(type.static_nbytes + 2 * self.margin, "an output")
        return DeviceArray(self.device, block, self.margin, type)

    def margins(self, array: DeviceArray) -> tuple[np.ndarray, np.ndarray]:
        type, buffer = TensorType(u8, (self.margin,)), array.block.buffer
        first, last = (At(buffer, array.offset + start) for start in (-self.margin, array.nbytes))
        return self.read(first, type, (1,)), self.read(last, type, (1,))

    def staged(self, frame: Frame, plan: ExecutionPlan, buffer: BufferId) -> At:
        if buffer.kind not in self._starts:
            types = [leaf.type for leaf in plan.inputs] if buffer.kind == "input" else plan.results
            alignment = max(plan.alignment, self.device.facts.alignment)
            sizes = (aligned(type.static_nbytes, alignment) for type in types)
            self._starts[buffer.kind] = list(accumulate(sizes, initial=0))
        starts = self._starts[buffer.kind]
        if buffer.kind not in frame.staging:
            frame.staging[buffer.kind] = self.device.block(starts[-1], f"the {buffer.kind}s of a run")
        return At(frame.staging[buffer.kind].buffer, starts[buffer.number])

    def register(self, frames: Frames) -> None:
        self.device.pool.held_by(frames)

    def _allocation(self, nbytes: int, purpose: str) -> Allocation:
        block = self.device.block(nbytes, purpose)
        return Allocation(At(block.buffer, 0), block)

    # --------------------------------------------------------------------------------------------- arrays

    def bind(
        self, leaf: PlanLeaf, params: Params, *, is_used: bool, is_read: bool
    ) -> tuple[DeviceArray | None, np.ndarray | None]:
        array, key = params[leaf.name], (self.name, leaf.name)
        if isinstance(array, DeviceArray):
            if not is_read or leaf.is_donated:
                return array, None
            if leaf.name not in params.on_host:
                params.on_host[leaf.name] = array.to_host()
                params.transferred += array.nbytes
            return array, params.on_host[leaf.name]
        if is_used and key not in params.on_device:
            params.on_device[key] = self.device.put(array, f"parameter {leaf.name}")
            params.transferred += array.nbytes
        return params.on_device[key] if is_used else None, None if leaf.is_donated else usable(array)

    def at(self, array: Any) -> At | None:
        return At(array.block.buffer, array.offset) if isinstance(array, DeviceArray) else None

    def part(self, array: DeviceArray, offset: int, type: TensorType, strides: Strides, run: Any) -> DeviceArray:
        return DeviceArray(self.device, array.block, array.offset + offset, type, run)

    def accept(self, inputs: Sequence[Any], donated: Sequence[int], params: Collection[Any]) -> Sequence[Any]:
        device_inputs = [x for x in inputs if isinstance(x, DeviceArray)]
        if not donated or not device_inputs:
            return inputs
        blocks = [x.block for x in (*device_inputs, *params)]
        ready = list(inputs)
        for number in donated:
            array = inputs[number]
            if isinstance(array, DeviceArray) and sum(block is array.block for block in blocks) > 1:
                ready[number] = array.copy()
        return ready

    def operand(self, frame: Frame, location: Location, type: TensorType) -> DeviceArray:
        if not type.size:
            return self.device.empty(type)
        return self.device.dense(frame.at(location), type, location.strides)

    def element(self, array: DeviceArray, index: int) -> DeviceArray:
        type = array.type.with_shape(array.type.shape[1:])
        address = At(array.block.buffer, array.offset + index * type.static_nbytes)
        return self.device.dense(
            address, type, dense_strides(type)
        )  # a copy, because kernels read at aligned addresses

    def store(self, array: DeviceArray, address: At) -> None:
        if array.run is not None:
            array.run.settle()
        self.device.driver.copy(array.block.buffer, array.offset, address.buffer, address.offset, array.nbytes)

    # ------------------------------------------------------------------------------------------- transfers

    def copy_to(self, source: At, type: TensorType, strides: Strides, target: At) -> None:
        assert strides == dense_strides(type), "callers read outputs densely, and the plan knows it"
        nbytes = type.static_nbytes
        self.device.driver.copy(source.buffer, source.offset, target.buffer, target.offset, nbytes)

    def fill(self, address: At, nbytes: int, byte: int) -> None:
        self.device.driver.fill(address.buffer, address.offset, nbytes, byte)

    def read(self, address: At, type: TensorType, strides: Strides) -> np.ndarray:
        shape, dtype = type.static_shape, type.dtype.numpy
        if type.size == 0:
            return np.empty(shape, dtype)
        low, high = extent(type, strides)
        raw = np.empty(high - low, np.uint8)
        self.device.driver.read(address.buffer, address.offset + low, raw)
        if strides == dense_strides(type):
            return raw.view(dtype).reshape(shape)
        return strided(raw, -low, shape, dtype, strides)

    def write(self, address: At, array: np.ndarray, *, waits: bool = True) -> None:
        self.device.driver.write(address.buffer, address.offset, usable(array), waits=waits)

    def synchronize(self) -> None:
        self.device.driver.synchronize()

    # ------------------------------------------------------------------------------------------------ runs

    def in_turn(self, begin: Callable[[], T], finish: Callable[[T], R]) -> R:
        """A run has all its memory before its first step. Where memory is short, it begins again without other runs."""
        turns = self.device.pool.turns  # raises in a forked child, before anything is touched
        for turn in (turns.among_others, turns.alone):
            with turn():
                try:
                    started = begin()
                except OutOfMemoryError as error:
                    lack = error.with_traceback(None)  # it, or a context's, would keep the memory of this run
                    lack.__context__ = None
                    continue
                return finish(started)
        raise lack


def aligned(nbytes: int, alignment: int) -> int:
    """`nbytes`, rounded up to a multiple of `alignment`."""
    return -(-nbytes // alignment) * alignment
