"""What a program does besides its results while it is looked into: `rlx.debug.print` and `rlx.debug.callback`."""

from rlx_core.functions.callbacks import debug_callback as callback
from rlx_core.functions.callbacks import debug_print as print

__all__ = ["callback", "print"]
