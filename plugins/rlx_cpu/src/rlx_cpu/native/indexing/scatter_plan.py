"""Decisions of a scatter before code generation: how updates are combined, and how the result is partitioned."""

from __future__ import annotations

from typing import Any

from rlx_core.codegen.indexing import Indexing, fault_of
from rlx_core.codegen.places import Fault
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.indexing import ScatterAdd
from rlx_core.ops.scatter import Scatter
from rlx_core.system.records import frozen
from rlx_cpu.native.indexing.chains import Chains, is_worth_chains
from rlx_cpu.native.machine import CpuMachine


def mode_of(op: Any) -> str:
    """Return how an update is combined with the existing element."""
    return op.mode if isinstance(op, Scatter) else "add"


@frozen
class ScatterCut:
    """The partition of a result over threads.

    Attributes:
        block: Elements of a block of columns.
        shares_rows: Whether threads have ranges of rows.
        is_chained: Whether the updates of each row are chained.
    """

    block: int
    shares_rows: bool
    is_chained: bool


@frozen
class Scattering:
    """One `ScatterAdd` or `Scatter`.

    Narrow floats are added up in f32, in a table of the workspace, and rounded once at the end.

    Attributes:
        dtype: Dtype of the combined elements: both parts of a complex number are added separately, and elements that are only
            overwritten are treated as bits.
        inner: Number of such elements in a row.
        operands: Number of operands: updates and indices, preceded by the initial value of the result if that is not zeros.
        title: Name of the op.
    """

    problem: Indexing
    mode: str
    dtype: DType
    inner: int
    operands: int
    title: str

    @classmethod
    def of(cls, op: Op, operands: int, result: TensorType, indices: TensorType) -> Scattering:
        assert isinstance(op, ScatterAdd | Scatter), "registered for these"
        problem, mode = Indexing.of(result, indices, op.axis, op.batch_dims, op.oob), mode_of(op)
        stored = result.dtype
        element = dtype(f"u{8 * min(stored.itemsize, 8)}") if mode == "set" else stored.component
        inner = problem.inner * stored.itemsize // element.itemsize
        return cls(problem, mode, element, inner, operands, op.name.rpartition(".")[2])

    def cut(self, machine: CpuMachine) -> ScatterCut:
        """Return the partition for known sizes."""
        sizes, lines = machine.indexing, self.problem.lines
        is_whole = lines >= sizes.fewest_units or self.inner < 2 * sizes.columns
        block = self.inner if is_whole else sizes.columns
        blocks = -(-self.inner // block) if block else 0
        is_chained = self.operands == 2 and is_worth_chains(self.problem, self.row, machine)
        return ScatterCut(block, lines * blocks < sizes.fewest_units, is_chained)

    @property
    def is_started(self) -> bool:
        """Whether the result starts as an operand."""
        return self.operands == 3

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return self.inner * self.dtype.itemsize

    @property
    def is_rounded(self) -> bool:
        return self.mode != "set" and self.dtype.is_narrow

    @property
    def accumulator(self) -> DType:
        """The dtype that updates are combined in."""
        return self.dtype.accumulator if self.is_rounded else self.dtype

    @property
    def pitch(self) -> int:
        """Bytes of a row of combined elements."""
        return self.inner * self.accumulator.itemsize

    @property
    def fault(self) -> Fault | None:
        """The fault of an index outside of the table."""
        return fault_of(self.problem, self.title)

    def shared_workspace(self, cut: ScatterCut) -> int:
        """Return the bytes of memory shared by threads."""
        problem = self.problem
        if cut.is_chained:
            return Chains.nbytes(problem)
        return (
            max(problem.lines * problem.size * self.pitch, 1) if self.is_rounded and problem.lines * self.inner else 0
        )

    def uses_threads(self, machine: CpuMachine) -> bool:
        """Return whether threads share it, for known sizes."""
        problem = self.problem
        return (problem.size + problem.count) * problem.lines * self.row >= machine.serial_nbytes
