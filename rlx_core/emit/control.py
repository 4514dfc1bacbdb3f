"""Control flow on a device: the host goes round the loop, and everything that is computed is launched on the device.

Each graph of such a step is a program of its own on the same device. Carries, elements and results stay there; of all values only
conditions are read, once a round. So a loop costs the host a run of its body a round, and no element crosses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count as counting
from typing import TYPE_CHECKING, Any

from rlx_core.device.array import DeviceArray
from rlx_core.device.device import Device
from rlx_core.device.driver import At
from rlx_core.errors import RlxError
from rlx_core.ir.graph import Value
from rlx_core.ir.lir import Step
from rlx_core.ir.rules import RuleTable
from rlx_core.ir.strides import dense_strides
from rlx_core.ops.control.conditional import If
from rlx_core.ops.control.loop import While
from rlx_core.ops.control.scan import Scan
from rlx_core.pipeline.select.backend import at_step
from rlx_core.pipeline.select.kernels import KernelTable

if TYPE_CHECKING:
    from rlx_core.emit.program import DeviceProgram

__all__ = ["control_rows", "drive"]

Run = Callable[[str, Sequence[DeviceArray]], Sequence[DeviceArray]]
"""Runs one of an op's graphs, by the name of its attribute."""

Stored = Callable[[int, DeviceArray, int], None]
"""Puts an array into a result, by its number, some bytes from its start."""

driven = RuleTable("driven on a device")
"""`(op, run, operands, store)`: the loop of an op."""


def control_rows(table: KernelTable, tier: str) -> None:
    """Add the rows of the ops whose graphs the host runs one by one."""

    @table.register(If, While, Scan, runs_nested=True, name="driven", tier=tier)
    def run_anywhere(op: Any, *operands: Any, out: Any, workspace: Any) -> None:
        """The host's loop over programs on the device, one for each graph."""
        raise AssertionError(f"{op.name} is driven by the program that its step is in")


def drive(step: Step, programs: Mapping[str, DeviceProgram], device: Device, locate: Callable[[Value], At]) -> int:
    """Run a step that holds graphs; the bytes that crossed for it.

    Args:
        step: Which one.
        programs: Those of its graphs, by attribute.
        device: Where all of it lies.
        locate: Where operands and results are now.
    """
    crossed = 0

    def run(name: str, operands: Sequence[DeviceArray]) -> Sequence[DeviceArray]:
        nonlocal crossed
        results = programs[name].run_inside(operands)
        crossed += programs[name].traffic.steps
        return results

    def store(number: int, array: DeviceArray, offset: int) -> None:
        if array.nbytes:
            if array.run is not None:
                array.run.settle()
            at = locate(step.node.results[number])
            device.driver.copy(array.block.buffer, array.offset, at.buffer, at.offset + offset, array.nbytes)

    def given(value: Value) -> DeviceArray:
        if not value.type.size:
            return device.empty(value.type)
        return device.dense(locate(value), value.type, dense_strides(value.type))

    try:
        driven.apply(step.node.op, run, [given(v) for v in step.node.present()], store)
    except RlxError as error:
        raise at_step(error, step) from None
    return crossed


@driven(If)
def choose(op: If, run: Run, x: Sequence[DeviceArray], store: Stored) -> None:
    for number, result in enumerate(run("then" if x[0].to_host() else "otherwise", x[1:])):
        store(number, result, 0)


@driven(While)
def repeat(op: While, run: Run, x: Sequence[DeviceArray], store: Stored) -> None:
    state, consts = x[: op.carries], x[op.carries :]
    for step in counting():
        if step == op.max_steps or not run("cond", (*state, *consts))[0].to_host():
            break
        state = run("body", (*state, *consts))
    for number, result in enumerate(state):
        store(number, result, 0)


@driven(Scan)
def step_through(op: Scan, run: Run, x: Sequence[DeviceArray], store: Stored) -> None:
    state, consts, xs = op.split(x)
    assert isinstance(op.length, int), "sizes are known when programs run"
    steps = range(op.length)
    for t in reversed(steps) if op.reverse else steps:
        found = run("body", (*state, *consts, *(element(each, t) for each in xs)))
        state = tuple(found[: op.carries])
        for number, y in enumerate(found[op.carries :], op.carries):
            store(number, y, t * y.nbytes)
    for number, result in enumerate(state):
        store(number, result, 0)


def element(array: DeviceArray, t: int) -> DeviceArray:
    """One element along the first axis, where kernels can begin to read."""
    type = array.type.with_shape(array.type.shape[1:])
    at = At(array.block.buffer, array.offset + t * type.static_nbytes)
    return array.device.dense(at, type, dense_strides(type))
