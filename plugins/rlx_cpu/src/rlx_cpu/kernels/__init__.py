"""NumPy kernels of the CPU backend, one family a file. Every one writes into memory that the plan owns.

`reference.py` serves any op that has a NumPy meaning; the rows of the other files are preferred where they take the node. The
table (`table.py`) imports the files of a program's ops.
"""

from rlx_cpu.kernels.table import kernels

__all__ = ["kernels"]
