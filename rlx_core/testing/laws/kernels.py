"""The laws of contributed kernels, compiled and dispatched as users' programs are.

A kernel is a function that writes into memory which the plan gives it, so it is tried in four places: alone, as the last
reader of its operands (whose memory it then takes over, if it supports this), together with another reader of them, and on
operands that lie in memory with gaps. Each program runs three times, because memory is clean only the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from attrs import field

from rlx_core.ir.graph import Builder, Graph, Value, as_results, building
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.movement import flip
from rlx_core.ops.structural import transpose
from rlx_core.pipeline.compile import compile_graph
from rlx_core.plugins import default_host
from rlx_core.runtime.executable import Executable
from rlx_core.system.records import frozen
from rlx_core.testing.cases import OpProgram
from rlx_core.testing.subjects import KernelRow
from rlx_core.testing.yardstick import yardstick

# Only the passes that every program needs: no pass may remove the nodes around the kernel.
BARE: Final = {"use": "bare", "pipeline": {"bare": {"hir": ["lower-hir"], "mir": ["dead-code", "legalize"]}}}


@frozen(eq=False)
class KernelCase:
    """A kernel, and a program that it takes."""

    row: KernelRow
    program: OpProgram

    def __str__(self) -> str:
        return f"{self.row} on {self.program}"


@frozen(eq=False)
class PlacedProgram:
    """A program around one op: its name, the graph, and a function from the op's arrays to its inputs."""

    name: str
    graph: Graph
    feed: Callable[[Sequence[np.ndarray]], list[np.ndarray]] = field(default=list)


def kernel_cases(row: KernelRow, tried: Sequence[OpProgram]) -> list[KernelCase]:
    """Return the programs that a kernel accepts; ops that fail have none, because the laws of ops report them."""
    takes = [p for p in tried if issubclass(p.op, row.kernel.op) and p.is_static and p.failure is None]
    return [KernelCase(row, p) for p in takes if row.kernel.refusal(p.node) is None]


class Kernels:
    """Each kernel, on each program that it takes."""

    def test_kernel_runs_what_it_takes(self, kernel: tuple[KernelRow, list[KernelCase]]) -> None:
        row, cases = kernel
        assert cases, (
            f"{row} takes none of the samples of {row.kernel.op.name or 'any op'}; give the op one that it takes"
        )
        ran: set[str] = set()
        for case in cases:
            report = compiled(case.program.graph, row.target, BARE).report
            ran |= {name for op, name, _ in report.kernels if op == case.program.op.name}
        names = {row.kernel.name, f"{row.plugin}.{row.kernel.name}"}
        assert ran & names, (
            f"{row} runs on none of the {len(cases)} programs that it takes: {', '.join(ran)} is preferred"
        )

    def test_kernel_agrees_with_the_oracle(self, kernel_case: KernelCase) -> None:
        agrees(kernel_case, [PlacedProgram("alone", kernel_case.program.graph)], {})

    def test_kernel_is_right_in_every_place(self, kernel_case: KernelCase) -> None:
        agrees(kernel_case, [make(kernel_case.program) for make in PLACES.values()], BARE)


def agrees(case: KernelCase, programs: Sequence[PlacedProgram], config: dict[str, Any]) -> None:
    """Require the tolerance of the yardstick for each program, run after run."""
    for placed in programs:
        executable = compiled(placed.graph, case.row.target, config)
        first, second = placed.feed(case.program.draw()), placed.feed(case.program.draw(1))
        for turn, arrays in enumerate((first, second, first)):
            fed = dict(zip(placed.graph.input_types, arrays, strict=True))
            try:
                outputs = [np.array(a) for a in executable.run(fed)]
            except Exception as error:
                error.add_note(f"{case}, {placed.name}")
                raise
            complaint = yardstick(placed.graph, fed).complaint(outputs)
            assert complaint is None, f"{case}, {placed.name}, run {turn + 1}: {complaint}"


def compiled(graph: Graph, target: str, config: dict[str, Any]) -> Executable:
    """The program as a user's would be compiled; with freed memory made unreadable where the target can do that."""
    poison = f"{target}.poison"
    options = {"options": {poison: True}} if poison in default_host().registry().options else {}
    return Executable(compile_graph(graph, target=target, config={**config, **options}))


# --------------------------------------------------------------------------------------------- places


def in_place(program: OpProgram) -> PlacedProgram:
    """The op reads results of steps before it, and is their last reader."""
    return placed_after(program, "as the last reader of its operands", keeps=False)


def beside_another_reader(program: OpProgram) -> PlacedProgram:
    """The operands are results of the program as well, so they must be as they were."""
    return placed_after(program, "with operands that are read again", keeps=True)


def on_strided_operands(program: OpProgram) -> PlacedProgram:
    """Each operand is a transposed view."""
    builder, op = Builder("law"), program.node.op
    types = program.graph.input_types
    with building(builder):
        inputs = {n: builder.input(n, TensorType(t.dtype, t.shape[::-1])) for n, t in types.items()}
        views = [turned(v) for v in inputs.values()]
        results = called(program, op, views)
    graph = builder.finish(results)
    return PlacedProgram("on strided operands", graph, lambda arrays: [np.array(a.T, order="C") for a in arrays])


PLACES: Final[dict[str, Callable[[OpProgram], PlacedProgram]]] = {
    "in place": in_place,
    "beside another reader": beside_another_reader,
    "strided": on_strided_operands,
}


def placed_after(program: OpProgram, name: str, *, keeps: bool) -> PlacedProgram:
    builder, op = Builder("law"), program.node.op
    with building(builder):
        inputs = [builder.input(n, t) for n, t in program.graph.input_types.items()]
        # Flipped twice: the same elements in separate memory.
        copies = [twice_flipped(v) for v in inputs]
        results = called(program, op, copies)
    retained = [c for c, v in zip(copies, inputs, strict=True) if keeps and c is not v]
    return PlacedProgram(name, builder.finish([*results, *dict.fromkeys(retained)]))


def called(program: OpProgram, op: Op, operands: Sequence[Value]) -> tuple[Value, ...]:
    """The op on these operands, with the absent ones where the sample has them."""
    present = iter(operands)
    return as_results(op(*(None if t is None else next(present) for t in program.sample.types)))


def twice_flipped(value: Value) -> Value:
    if not value.ndim:
        return value
    result: Value = flip(flip(value, axes=(0,)), axes=(0,))
    return result


def turned(value: Value) -> Value:
    result: Value = transpose(value, perm=tuple(range(value.ndim))[::-1]) if value.ndim > 1 else value
    return result
