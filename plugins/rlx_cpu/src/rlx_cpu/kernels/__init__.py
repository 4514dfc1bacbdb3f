"""NumPy kernels of the CPU backend, one family a file. Every one writes into memory that the plan owns.

`reference.py` serves any op that has a NumPy meaning; the rows of the other files are preferred where they take the node.
"""

from rlx_cpu.kernels import (
    attention,
    elementwise,
    fourier,
    fused,
    indexing,
    linalg,
    normalization,
    reduction,
    reference,
)
from rlx_cpu.kernels.table import kernels

__all__ = ["FAMILIES", "kernels"]

FAMILIES = (*(reference, elementwise, reduction, linalg, fourier, indexing, normalization, attention, fused),)
