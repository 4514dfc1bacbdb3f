"""The law of backends: a target computes the same results as the interpreter, and the same bits in every run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Graph
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.testing.about import EVERY, about, runs
from rlx_core.testing.cases import OpProgram, wide
from rlx_core.testing.judges import near_oracle

Run = Callable[[Graph, Sequence[np.ndarray]], Sequence[np.ndarray]]
"""A backend under test: the outputs of a graph on arrays in the order of its inputs."""


class EveryBackend:
    """The law as a test; subclass it with a name that starts with `Test`, and with `ops` to choose the programs.

    `--rlx-backend` names the backend. `EveryOp` has this law too.
    """

    ops: ClassVar[Sequence[type[Op]] | None] = None

    @about(runs, variants=EVERY)
    def test_backend_agrees_with_the_interpreter(self, program: OpProgram, backend: Run) -> None:
        arrays = program.draw()
        outputs = [np.asarray(a) for a in backend(program.graph, arrays)]
        for array, output in zip(outputs, program.graph.outputs, strict=True):
            computed = TensorType(dtype(array.dtype), array.shape)
            assert computed == output.type, f"the backend gives {computed}, declared is {output.type}"
        near_oracle(program.graph, outputs, wide(program.graph, arrays), arrays)
