"""The kernel of last resort: the op's own NumPy meaning, written into the planned buffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.ir.op import Op
from rlx_core.pipeline.kernels import run_reference
from rlx_cpu.kernels.table import has_reference, kernels


@kernels.register(Op, when=has_reference, accepts_strides=True, priority=-10, name="reference")
def reference(op: Any, *operands: np.ndarray | None, out: Any, workspace: Any) -> None:
    """Any primitive: two-byte floats are widened to f32, computed and rounded once."""
    run_reference(op, *operands, out=out, workspace=workspace)
