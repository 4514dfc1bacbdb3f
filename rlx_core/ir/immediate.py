"""Eager evaluation of ops on arrays: one tape for each combination of an op and operand types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from rlx_core.errors import Fact, RlxError
from rlx_core.errors.contained import reraise
from rlx_core.ir import nonfinite
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.element_functions import preferred_functions
from rlx_core.ir.graph import Builder, as_results, building
from rlx_core.ir.op import Op, exact
from rlx_core.ir.provenance import current_origin
from rlx_core.ir.tape import MAX_TAPES, Tape, tape_of_graph
from rlx_core.ir.types import TensorType

Kind: TypeAlias = "tuple[Any, ...] | None"
"""Key of an operand before its elements are known: dtype and shape of an array; a scalar, and a key for its bits."""


def evaluate(op: Op, operands: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """The results of `op` on arrays and Python scalars; `None` for an operand that is absent."""
    arrays: list[np.ndarray] = []
    kinds: list[Kind] = []
    for operand in operands:
        if isinstance(operand, np.ndarray | np.generic):
            arrays.append(np.asarray(operand))
            kinds.append((operand.dtype, operand.shape))
        else:
            kinds.append(None if operand is None else (operand, exact(operand)))
    tape = tape_for(op, tuple(kinds))
    try:
        results = tape.play(arrays, functions=preferred_functions() if tape.is_inexact else None)
    except RlxError as error:
        raise error.with_fact(Fact("op", op.title, current_origin().source)) from None
    except Exception as error:  # noqa: BLE001 - contributed code may raise anything; it is raised again, with its owner
        reraise(error, "ops", op.name, "its reference")
    if nonfinite.active() is not None:
        nonfinite.expect_finite(op, operands, results, current_origin().source)
    return results


@lru_cache(MAX_TAPES)
def tape_for(op: Op, kinds: tuple[Kind, ...]) -> Tape:
    """Return the tape of one op, on the operands that it would get in a trace: promotion and refusals are the same."""
    builder = Builder(op.name)
    operands: list[Any] = []
    for i, kind in enumerate(kinds):
        if kind is None or not isinstance(kind[0], np.dtype):
            # Scalars stay scalars, so that they promote as weakly as they would in a trace.
            operands.append(None if kind is None else kind[0])
        else:
            operands.append(builder.input(f"x{i}", TensorType(dtype(kind[0]), kind[1])))
    with building(builder):
        results = as_results(op(*operands))
    return tape_of_graph(builder.finish(results))
