"""Machine code for target `cpu`; without llvmlite the table has no rows, and LAPACK's serve."""

from rlx_cpu.native.table import NativeTable

__all__ = ["native"]

native = NativeTable(filled_by="rlx_custom_ops.emitters")
