"""All native kernels: importing this module fills the table."""

# Each registers its kernels.
from rlx_cpu.native.attention import backward, forward, rope  # noqa: F401
from rlx_cpu.native.control import emit  # noqa: F401
from rlx_cpu.native.fourier import transforms  # noqa: F401
from rlx_cpu.native.indexing import gather, scatter_rows  # noqa: F401
from rlx_cpu.native.loops import rows  # noqa: F401
from rlx_cpu.native.movement import boxes, windows  # noqa: F401
from rlx_cpu.native.ordering import search, sort_rows  # noqa: F401
from rlx_cpu.native.products import gemm, gemm_epilogue, gemm_integer, gemm_prologue  # noqa: F401
from rlx_cpu.native.scans import positions, running_rows  # noqa: F401
from rlx_cpu.native.systems import solve  # noqa: F401
from rlx_cpu.native.table import native

__all__ = ["native"]
