"""Kernel selection: the backend, its table of kernels, and the answer for each node, from a native kernel to a refusal.

Packages import `rlx_core.pipeline.kernels`, `backend` and `dispatch`, which stay where they are.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_modules

if TYPE_CHECKING:
    from rlx_core.pipeline.select import dispatch

__all__ = ["dispatch"]

if not TYPE_CHECKING:  # a program from a cache has its kernels
    __getattr__, __dir__ = lazy_modules(__name__, __all__)
