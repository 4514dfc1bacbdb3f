"""Running reductions by an assembler of arrays mean what the ops mean, and print on a line."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_core.codegen.scalars.numpy_assembler import NumpyAssembler
from rlx_core.codegen.scalars.standard import standard_table
from rlx_core.codegen.scans import RULES, ScanProblem
from rlx_core.ir.types import spec
from rlx_core.ops.cumulative import Cumsum
from rlx_core.testing.cases import OpProgram, programs

TABLE = standard_table("NumPy")
UNITS = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "c64": 2.0**-23, "f64": 2.0**-52, "c128": 2.0**-52}
PROGRAMS = [
    p
    for p in programs(tuple(RULES))
    if p.is_static and (not p.node.types[0].dtype.is_complex or p.op is Cumsum)  # only sums go part by part
]


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_scan_computes_what_its_op_means(program: OpProgram) -> None:
    (result,), operands = program.node.types, program.draw()
    scan = ScanProblem.of(program.node.op, result)
    with np.errstate(all="ignore"):
        found = scan.run(NumpyAssembler(), TABLE, *operands)
        exact = np.asarray(program.node.op(*(x.astype(result.dtype.accumulator.numpy) for x in operands)))
    found = found.reshape(-1).view(result.dtype.numpy).reshape(result.static_shape)
    # As many roundings as places, each of half an ulp of what was carried then.
    limit = 8 * UNITS.get(result.dtype.name, 0.0) * max(1.0, float(np.abs(exact[np.isfinite(exact)]).max(initial=0)))
    np.testing.assert_allclose(found.astype(exact.dtype), exact, rtol=0, atol=limit)


def test_a_scan_prints_on_a_line() -> None:
    scan = ScanProblem.of(Cumsum(1, exclusive=True, reverse=True), spec("f32[3, 5, 2]"))
    assert str(scan) == "scan cumsum f32[3, 5, 2] along 1 reverse exclusive"
