"""Samples of ops with an unknown size."""

from __future__ import annotations

from rlx_core.errors import RlxError
from rlx_core.ir.dims import symbol
from rlx_core.ir.graph import Builder, Graph, as_results, building
from rlx_core.ir.op import operand_names
from rlx_core.ir.types import TensorType
from rlx_core.testing.cases import OpProgram


def opened(program: OpProgram) -> Graph | None:
    """The call of a sample with an unknown size in the place of a known one; `None` where the op needs to know it."""
    types = program.sample.types
    known = next((n for t in types if t is not None for n in t.shape if n != 1), None)
    if known is None:
        return None

    def unknown(type: TensorType | None) -> TensorType | None:
        return type and type.with_shape(symbol("n") if size == known else size for size in type.shape)

    builder = Builder("opened")
    names = operand_names(program.op, len(types))
    with building(builder):
        operands = [None if t is None else builder.input(k, t) for k, t in zip(names, map(unknown, types), strict=True)]
        try:
            results = as_results(program.op(**program.case.sample.attributes)(*operands))
        except RlxError:
            return None
    return builder.finish(results)
