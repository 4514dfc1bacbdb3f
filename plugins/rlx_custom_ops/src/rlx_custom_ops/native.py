"""Machine code for target `cpu`; without llvmlite the table has no rows, and LAPACK's serve."""

from rlx_cpu.native.table import NativeTable

native = NativeTable(filled_by="rlx_custom_ops.emitters")
