"""Looking into programs while they run: `rlx.debug.print`, `callback`, `nans`, and profiles of whole regions of Python."""

from rlx_core.functions.callbacks import debug_callback as callback
from rlx_core.functions.callbacks import debug_print as print
from rlx_core.functions.nans import nans
from rlx_core.pipeline.profile import profiled

__all__ = ["callback", "nans", "print", "profiled"]
