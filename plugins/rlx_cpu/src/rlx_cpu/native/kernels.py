"""All native kernels: importing this module fills the table."""

from rlx_cpu.native import (  # noqa: F401  each registers its kernels
    attention,
    attention_backward,
    circular,
    cumulative,
    gather,
    gemm,
    gemm_epilogue,
    gemm_integer,
    inverse_error,
    loops,
    math,
    movement,
    positions,
    rope,
    scatter,
    search,
    sorting,
    wide_circular,
    wide_error,
    wide_exponential,
    wide_gamma,
    windows,
)
from rlx_cpu.native.table import native

__all__ = ["native"]
