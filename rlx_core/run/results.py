"""The outputs of a run: arrays in the program's memory, or copies on the host.

An output is a buffer that was allocated for the run, a copy of a value, or the buffer of a donated array. All memory for them is
allocated before the first step, so that a run without enough memory has changed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import field

from rlx_core.ir.strides import dense_strides
from rlx_core.run.frames import BoundParams, Frame, Frames
from rlx_core.run.memory import ProgramMemory
from rlx_core.run.plan import BufferId, ExecutionPlan, PlannedOutput
from rlx_core.system.records import frozen


@frozen(eq=False)
class ResultMemory:
    """Arrays in the program's memory for the outputs of one run.

    Attributes:
        returned: Number of the buffer → the array that is handed to the caller as it is.
        copies: Number of the output → the array that it is copied to.
    """

    returned: dict[int, Any] = field(factory=dict)
    copies: dict[int, Any] = field(factory=dict)


class Results:
    """How a program's outputs are delivered."""

    def __init__(self, plan: ExecutionPlan, memory: ProgramMemory, frames: Frames) -> None:
        self._plan, self._memory, self._frames = plan, memory, frames
        self._own = [(n, type) for n, type in enumerate(plan.results) if type.size]
        self._copied = [(n, o) for n, o in enumerate(plan.outputs) if o.kind != "own" and o.location is not None]
        self._donors = [(n, o, o.donor) for n, o in self._copied if o.donor is not None]

    def begin(self, frame: Frame, inputs: Sequence[Any], *, on_host: bool) -> ResultMemory:
        """Allocate memory for the outputs and bind their buffers.

        Args:
            on_host: Whether they are read to the host from a device.

        Raises:
            OutOfMemoryError: There is not that much memory.
        """
        memory, frames, result_memory = self._memory, self._frames, ResultMemory()
        for number, type in self._own:
            buffer = BufferId("result", number)
            if on_host:
                frames.bind(frame, buffer, memory.staged(frame, self._plan, buffer))
                continue
            result_memory.returned[number] = array = memory.result(type)
            address = memory.at(array)
            assert address is not None, "results lie in this memory"
            frames.bind(frame, buffer, address)
        if not on_host:
            for number, output in self._copied:
                if not (output.is_in_place and self._returns(output.donor, inputs)):
                    result_memory.copies[number] = memory.result(output.type)
        return result_memory

    def _returns(self, donor: BufferId | None, inputs: Sequence[Any]) -> bool:
        """Whether the caller gets the donated array itself: an input that lies in this memory, or on the host a parameter."""
        assert donor is not None, "an output in place is in a donated array"
        return self._memory.is_host or (donor.kind == "input" and self._memory.at(inputs[donor.number]) is not None)

    # ------------------------------------------------------------------------------ in the program's memory

    def in_memory(
        self, frame: Frame, inputs: Sequence[Any], params: BoundParams, result_memory: ResultMemory, run: Any
    ) -> list[Any]:
        """The outputs as arrays of the program's memory; `run` is the run that computes them."""
        memory = self._memory
        results = [
            self._value(frame, number, each, result_memory, run) for number, each in enumerate(self._plan.outputs)
        ]
        # After all values were copied, because one may lie in a buffer that another donation overwrites.
        for number, output, donor in self._donors:
            if number in result_memory.copies and (
                donor.kind == "param" or memory.at(inputs[donor.number]) is not None
            ):
                source = memory.at(result_memory.copies[number])
                assert source is not None, "results lie in this memory"
                memory.copy_to(source, output.type, dense_strides(output.type), frame.bound[donor])
            if self._returns(donor, inputs):
                array = inputs[donor.number] if donor.kind == "input" else params.arrays[donor.number]
                results[number] = memory.part(array, 0, output.type, dense_strides(output.type), run)
        return results

    def _value(self, frame: Frame, number: int, output: PlannedOutput, result_memory: ResultMemory, run: Any) -> Any:
        """An output as a separate array; `None` for one that is in place in a donated array."""
        memory, location = self._memory, output.location
        if location is None:
            return memory.result(output.type)
        if output.kind == "own":
            return memory.part(
                result_memory.returned[location.buffer.number], location.offset, output.type, location.strides, run
            )
        if number not in result_memory.copies:
            return None
        copy = result_memory.copies[number]
        target = memory.at(copy)
        assert target is not None, "results lie in this memory"
        memory.copy_to(frame.at(location), output.type, location.strides, target)
        return memory.part(copy, 0, output.type, dense_strides(output.type), run)

    # ---------------------------------------------------------------------------------------- on the host

    def on_host(self, frame: Frame, inputs: Sequence[Any], params: BoundParams) -> tuple[list[np.ndarray], int]:
        """The outputs read to the host from a device, and the bytes that were."""
        memory, plan = self._memory, self._plan
        results: list[np.ndarray] = []
        nread = 0
        for output in plan.outputs:
            if output.location is None:
                results.append(np.empty(output.type.static_shape, output.type.dtype.numpy))
                continue
            results.append(memory.read(frame.at(output.location), output.type, output.location.strides))
            nread += output.type.static_nbytes
        for number, output, donor in self._donors:
            donated = inputs[donor.number] if donor.kind == "input" else params.prepared[plan.params[donor.number].name]
            is_staged = donor.kind == "input" and isinstance(donated, np.ndarray)
            if not is_staged and not output.is_in_place:
                memory.write(frame.bound[donor], np.ascontiguousarray(results[number]))
            if isinstance(donated, np.ndarray):
                np.copyto(donated, results[number])
                results[number] = donated
        return results, nread
