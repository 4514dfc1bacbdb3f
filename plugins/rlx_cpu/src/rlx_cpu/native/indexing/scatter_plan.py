"""What writing at indices decides before any code is made: what is combined, and how the result is shared out."""

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

__all__ = ["ScatterCut", "Scattering", "mode_of"]


def mode_of(op: Any) -> str:
    """How an update is combined with what is there."""
    return op.mode if isinstance(op, Scatter) else "add"


@frozen
class ScatterCut:
    """How a result is shared out.

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
        dtype: Of what is combined: the two parts of a complex number are added by themselves, and what is only overwritten is
            bits.
        inner: Of those, in a row.
        operands: How many there are: updates and indices, and in front what the result starts as, if that is not zeros.
        title: What the op is called.
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
        held = result.dtype
        element = dtype(f"u{8 * min(held.itemsize, 8)}") if mode == "set" else held.component
        inner = problem.inner * held.itemsize // element.itemsize
        return cls(problem, mode, element, inner, operands, op.name.rpartition(".")[2])

    def cut(self, machine: CpuMachine) -> ScatterCut:
        """How it is shared out, for known sizes."""
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
        """Bytes of a row of what is combined."""
        return self.inner * self.accumulator.itemsize

    @property
    def fault(self) -> Fault | None:
        """What is said of an index outside."""
        return fault_of(self.problem, self.title)

    def shared_workspace(self, cut: ScatterCut) -> int:
        """Bytes of what threads share."""
        problem = self.problem
        if cut.is_chained:
            return Chains.nbytes(problem)
        return (
            max(problem.lines * problem.size * self.pitch, 1) if self.is_rounded and problem.lines * self.inner else 0
        )

    def uses_threads(self, machine: CpuMachine) -> bool:
        """Whether threads share it, for known sizes."""
        problem = self.problem
        return (problem.size + problem.count) * problem.lines * self.row >= machine.serial_nbytes
