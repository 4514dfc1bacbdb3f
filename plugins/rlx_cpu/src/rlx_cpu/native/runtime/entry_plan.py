"""From an execution plan to the parts of a program's entry, or to the reason why it has none.

An entry serves programs that are native from end to end and whose results reach the caller in a way that a straight line of
code can follow: new arrays, donated arguments, and copies that no other result overwrites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from attrs import field

from rlx_core.ir.array import Donated, donation_text
from rlx_core.ir.strides import is_dense
from rlx_core.run.plan import BufferId, ExecutionPlan, Location, PlanLeaf, PlannedOutput
from rlx_core.system.records import frozen
from rlx_cpu.native.runtime.entry import EntryArgument, EntryResult, ResultCopy
from rlx_cpu.native.runtime.entry_words import FRESH

MAX_DONATION_CHECKS = 1 << 16
"""Donated arguments times all arguments and parameters: every pair is compared in a call."""


def reason_against(plan: ExecutionPlan) -> str | None:
    """Return why a native program cannot be entered directly; `None` if it can."""
    donated = sum(leaf.is_donated for leaf in plan.inputs)
    param = next((leaf.name for leaf in plan.params if leaf.is_donated), None)
    if param is not None:
        return f"parameter {param} is donated"
    others = len(plan.inputs) + len(plan.params)
    if donated * others > MAX_DONATION_CHECKS:
        return f"{donated} inputs are donated, too many to compare with all {others} inputs and parameters"
    for output in plan.outputs:
        reason = _reason_against_output(plan, output)
        if reason is not None:
            return f"output {output.name} {reason}"
    return None


def _reason_against_output(plan: ExecutionPlan, output: PlannedOutput) -> str | None:
    location = output.location
    if location is None:
        return None
    if output.kind == "own":
        return None if _covers(plan, output, location) else "is a part of its buffer"
    if not is_dense(output.type, location.strides):
        return "is copied from a strided view"
    if output.kind == "donor" and location.buffer.kind == "input" and location.buffer != output.donor:
        return "is copied from one argument to another"
    return None


def _covers(plan: ExecutionPlan, output: PlannedOutput, location: Location) -> bool:
    """Return whether an output is all of its buffer's bytes in order."""
    nbytes = plan.results[location.buffer.number].static_nbytes
    return location.offset == 0 and output.type.static_nbytes == nbytes and is_dense(output.type, location.strides)


@frozen(eq=False)
class Ends:
    """Both ends of an entry: arguments, results, and the copies in between.

    Attributes:
        words: Additional words that contain addresses for the copies.
    """

    inputs: list[EntryArgument]
    outputs: list[EntryResult]
    copies: list[ResultCopy] = field(factory=list)
    words: list[np.ndarray] = field(factory=list)


def ends(
    plan: ExecutionPlan,
    words: Mapping[BufferId, list[tuple[int, int]]],
    address: Callable[[BufferId], int],
    program: str,
) -> Ends:
    """The ends of a program that `reason_against` has nothing against.

    Args:
        program: Its name, for errors about donated arguments.
        words: For the buffers of inputs and results, the addresses of words that hold theirs, with bytes to add.
        address: Returns the addresses of the other buffers in the entry's frame.
    """
    inputs = [
        EntryArgument(leaf.type, _donated(leaf, program), list(words.get(BufferId("input", i), ())))
        for i, leaf in enumerate(plan.inputs)
    ]
    both = Ends(inputs, [])
    arrays: dict[BufferId, EntryArgument | EntryResult] = {BufferId("input", i): each for i, each in enumerate(inputs)}
    for output in plan.outputs:
        result = EntryResult(output.type, FRESH if output.donor is None else output.donor.number)
        both.outputs.append(result)
        if output.kind == "own" and output.location is not None:
            result.places.extend(words.get(output.location.buffer, ()))
            arrays[output.location.buffer] = result
    for output, result in zip(plan.outputs, both.outputs, strict=True):
        location = output.location
        if location is None or output.kind == "own" or location.buffer == output.donor:
            continue
        into, source = result if output.donor is None else arrays[output.donor], arrays.get(location.buffer)
        addresses = np.zeros(2, np.int64)
        both.words.append(addresses)
        first, second = addresses.ctypes.data, addresses.ctypes.data + 8
        into.places.append((first, 0))
        if source is None:
            addresses[1] = address(location.buffer) + location.offset
        else:
            source.places.append((second, location.offset))
        both.copies.append(ResultCopy(first, second, output.type.static_nbytes))
    return both


def _donated(leaf: PlanLeaf, program: str) -> Donated | None:
    """Return the marker to which a donated input refers after a call."""
    if not leaf.is_donated:
        return None
    return Donated(donation_text(leaf.name, program), leaf.type.dtype.numpy, leaf.type.static_shape)
