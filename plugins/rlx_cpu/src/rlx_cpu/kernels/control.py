"""Control flow driven from Python: each graph is a program of its own, run as often as the op says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx_core.ir.graph import as_results
from rlx_core.ops.control.conditional import If
from rlx_core.ops.control.loop import While
from rlx_core.ops.control.scan import Scan
from rlx_core.pipeline.backend import Program
from rlx_cpu.kernels.table import kernels


@kernels.register(If, While, Scan, runs_nested=True, name="driven")
def driven(
    op: If | While | Scan, *operands: np.ndarray, out: Any, workspace: Any, programs: Mapping[str, Program]
) -> None:
    """The op's own loop over programs made of its graphs."""
    found = op.driven(lambda name, arrays: programs[name].run(arrays), operands)
    for place, result in zip(as_results(out), found, strict=True):
        np.copyto(place, result)
