"""Control flow driven by the host: each graph of an op is a program, which the host runs repeatedly.

Carried values, elements and results stay in the program's memory; the host reads conditions alone, once per iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_core.ir.op import Op
from rlx_core.ir.rules import RuleTable
from rlx_core.ops.control.conditional import If
from rlx_core.ops.control.loop import While
from rlx_core.ops.control.scan import Scan
from rlx_core.pipeline.kernels import KernelTable

if TYPE_CHECKING:
    from rlx_core.run.memory import ProgramMemory

Run = Callable[[str, Sequence[Any]], Sequence[Any]]
"""Runs one of an op's graphs, by the name of its attribute."""

Store = Callable[[int, Any, int], None]
"""Copies an array into a result, by its number, some bytes from its start."""

driven = RuleTable("driven by the host")
"""`(op, memory, run, operands, store)`: the loop of an op."""


def control_rows(table: KernelTable, **traits: Any) -> None:
    """Add the rows of the ops whose graphs the host runs one by one; `traits` are those of `KernelTable.register`."""

    @table.register(If, While, Scan, runs_nested=True, name="driven", **traits)
    def run_alone(op: Any, *operands: Any, out: Any, workspace: Any) -> None:
        """The host drives programs of the op's graphs."""
        raise AssertionError(f"{op.name} is driven by the program that its step is in")


def drive(op: Op, memory: ProgramMemory, run: Run, operands: Sequence[Any], store: Store) -> None:
    """Run an op with graphs on arrays of a memory."""
    driven.apply(op, memory, run, operands, store)


@driven(If)
def run_branch(op: If, memory: ProgramMemory, run: Run, x: Sequence[Any], store: Store) -> None:
    for number, result in enumerate(run("then" if _is_true(x[0]) else "otherwise", x[1:])):
        store(number, result, 0)


@driven(While)
def run_while(op: While, memory: ProgramMemory, run: Run, x: Sequence[Any], store: Store) -> None:
    state, consts = memory.carried(x[: op.carries]), x[op.carries :]
    for step in count():
        if step == op.max_steps or not _is_true(run("cond", (*state, *consts))[0]):
            break
        state = run("body", (*state, *consts))
    for number, result in enumerate(state):
        store(number, result, 0)


@driven(Scan)
def run_scan(op: Scan, memory: ProgramMemory, run: Run, x: Sequence[Any], store: Store) -> None:
    begin, consts, xs = op.split(x)
    state = memory.carried(begin)
    assert isinstance(op.length, int), "sizes are known when programs run"
    steps = range(op.length)
    for t in reversed(steps) if op.reverse else steps:
        results = run("body", (*state, *consts, *(memory.element(each, t) for each in xs)))
        state = results[: op.carries]
        for number, y in enumerate(results[op.carries :], op.carries):
            store(number, y, t * y.nbytes)
    for number, result in enumerate(state):
        store(number, result, 0)


def _is_true(condition: Any) -> bool:
    """Whether a scalar is true; one on a device is read."""
    return bool(np.asarray(condition))
