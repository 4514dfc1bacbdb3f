"""Kernel tables, for authors of backends and of kernels. (`select/kernels.py`)"""

from rlx_core.pipeline.select import kernels
from rlx_core.pipeline.select.kernels import *

__all__ = [*kernels.__all__]
