"""Runs of graphs on a target by its name, and the reasons for declined graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from rlx_core.errors import LegalizeError
from rlx_core.ir.graph import Graph
from rlx_core.pipeline.compile import compile_graph
from rlx_core.pipeline.kernels import HOST
from rlx_core.runtime.executable import Executable
from rlx_core.system.records import define

DECLINED: Final = "declined: "
"""The prefix of the reason of a law that is skipped because a target declines the program."""


@define
class TargetRun:
    """Compiles a graph for a target by its name, passes and all, and runs it twice, to the same bits.

    Attributes:
        kernels: The target's kernels in the last program; none if that was nothing but views and calls of the host.
    """

    target: str
    kernels: tuple[str, ...] = ()

    def __call__(self, graph: Graph, arrays: Sequence[Any]) -> Sequence[np.ndarray]:
        executable = Executable(compile_graph(graph, target=self.target))
        self.kernels = tuple(sorted({name for _, name, _ in executable.report.kernels if name != HOST}))
        inputs = dict(zip(graph.input_types, arrays, strict=True))
        outputs = [np.array(each) for each in executable.run(inputs)]
        for place, (first, again) in enumerate(zip(outputs, executable.run(inputs), strict=True)):
            is_same = first.tobytes() == np.asarray(again).tobytes()
            assert is_same, f"output {place} has other bits in a second run on {self.target}"
        return outputs


def reason_declined(error: LegalizeError) -> str | None:
    """Return the reason why a target declines a program: the ops and the reason of each kernel; `None` if a row is broken.

    A row that cannot be used is the cause of the error, and a fault of its plugin.
    """
    if error.__cause__ is not None:
        return None
    return "; ".join([error.message, *(str(fact.value) for fact in error.facts[:1])])
