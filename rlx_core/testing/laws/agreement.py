"""The law of one definition: an element-wise op has the same bits evaluated eagerly, folded and compiled."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_core.errors import DeviceError
from rlx_core.ir.graph import Builder, Value, as_results, building
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.compile import compile_graph
from rlx_core.runtime.executable import Executable
from rlx_core.testing.about import about
from rlx_core.testing.cases import OpProgram
from rlx_core.testing.special_points import points, same_bits


def is_elementwise(program: OpProgram) -> bool:
    """Return whether the program is an element-wise op, defined for every value of operands of one shape."""
    sample = program.sample
    shapes = {None if t is None else t.shape for t in sample.types}
    return (
        program.op.category == "elementwise"
        and program.is_static
        and len(shapes) == 1
        and None not in shapes
        and () not in shapes
        and not sample.make
        and "shape" not in program.op.__annotations__
    )


class Agreement:
    """An element-wise op at special and ordinary points: eager, folded and compiled for the default target."""

    @about(is_elementwise)
    def test_eager_folded_and_compiled_results_have_the_same_bits(self, program: OpProgram) -> None:
        dtypes = [t.dtype for t in program.sample.types if t is not None]
        arrays = points(dtypes, program.rng())
        op = program.op(**program.sample.attributes)
        eager = [np.asarray(r) for r in as_results(op(*arrays))]
        try:
            compiled = run(program, arrays, is_constant=False)
            folded = run(program, arrays, is_constant=True)
        except DeviceError as error:
            pytest.skip(f"no backend is installed, and NumPy's references serve all modes ({error.message})")
        for name, results in (("compiled", compiled), ("folded", folded)):
            for expected, actual in zip(eager, results, strict=True):
                assert actual.dtype == expected.dtype, f"eager gives {expected.dtype}, {name} {actual.dtype}"
                different = np.flatnonzero(~same_bits(expected, actual))
                assert not different.size, "\n".join(
                    [
                        f"{different.size} of {actual.size} elements differ",
                        *(
                            f"  {', '.join(repr(x[i].item()) for x in arrays)}: "
                            f"eager {expected[i].item()!r}, {name} {actual[i].item()!r}"
                            for i in different[:5]
                        ),
                    ]
                )


def run(program: OpProgram, arrays: list[np.ndarray], *, is_constant: bool) -> list[np.ndarray]:
    """Return the results of a compiled program of the op, whose operands are inputs or constants."""
    builder = Builder("law")
    with building(builder):
        operands: list[Value] = [
            builder.constant(x) if is_constant else builder.input(f"x{i}", TensorType(t.dtype, x.shape))
            for i, (x, t) in enumerate(zip(arrays, program.sample.types, strict=True))
            if t is not None
        ]
        graph = builder.finish(as_results(program.op(**program.sample.attributes)(*operands)))
    executable = Executable(compile_graph(graph))
    return [np.asarray(r) for r in executable.run_slots([] if is_constant else list(arrays))]
