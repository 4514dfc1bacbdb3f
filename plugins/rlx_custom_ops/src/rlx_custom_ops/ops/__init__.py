"""The ops by family. `OPS` is all of them; the modules know the mathematics and NumPy, and nothing of kernels."""

import importlib
from typing import Any

from rlx_custom_ops.plugin import FAMILIES

__all__ = ["OPS"]

OPS: tuple[Any, ...] = tuple(op for name in FAMILIES for op in importlib.import_module(f"{__name__}.{name}").OPS)
