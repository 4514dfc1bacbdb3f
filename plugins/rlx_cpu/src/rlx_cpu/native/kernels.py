"""All native kernels: importing this module fills the table."""

from rlx_cpu.native import loops, math
from rlx_cpu.native.table import native

__all__ = ["FAMILIES", "native"]

FAMILIES = (loops, math)
