"""A running reduction, and the partition of its lines: decisions before code generation."""

from __future__ import annotations

from rlx_core.codegen.scans import ScanProblem
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.cumulative import CumLogSumExp
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm.isa import Isa

SQUARE = 16
"""Most lanes of a square that is transposed: more would not stay in registers."""


@frozen
class Running:
    """A scan, and how its lines are shared out.

    Attributes:
        block: Lines of a unit: neighbours, or one after the other.
    """

    scan: ScanProblem
    block: int
    isa: Isa

    @classmethod
    def of(cls, op: Op, result: TensorType, isa: Isa) -> Running:
        """Return the problem of known sizes."""
        scan = ScanProblem.of(op, result)
        lanes, sizes = isa.lanes(scan.dtype.accumulator), isa.machine.scans
        if scan.inner == 1:
            return cls(scan, min(lanes, SQUARE), isa)
        # Of functions there is much code, and memory is not what their lines wait for.
        widths = sizes.line_nbytes[-1:] if isinstance(op, CumLogSumExp) else sizes.line_nbytes
        blocks = [lanes * max(1, nbytes // (lanes * scan.dtype.itemsize)) for nbytes in widths]
        candidates = (n for n in blocks if scan.outer * -(-scan.inner // n) >= sizes.fewest_units)
        return cls(scan, next(candidates, blocks[-1]), isa)

    @property
    def nbytes(self) -> int:
        """Bytes of the result."""
        return self.scan.lines * self.scan.n * self.scan.dtype.itemsize

    @property
    def units(self) -> int:
        s = self.scan
        return -(-s.outer // self.block) if s.inner == 1 else s.outer * -(-s.inner // self.block)

    @property
    def uses_threads(self) -> bool:
        """Whether threads share it, for known sizes."""
        work = self.nbytes * (8 if self.scan.op is CumLogSumExp else 1)
        return self.units > 1 and work >= self.isa.machine.serial_nbytes
