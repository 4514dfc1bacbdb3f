"""All native kernels: importing this module fills the table."""

from rlx_cpu.native import attention, attention_backward, gemm, loops, math, movement
from rlx_cpu.native.table import native

__all__ = ["FAMILIES", "native"]

FAMILIES = (attention, attention_backward, gemm, loops, math, movement)
