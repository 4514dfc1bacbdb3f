"""The answer of a target for a node, for authors who add legalisations. (`select/dispatch.py`)"""

from rlx_core.pipeline.select import dispatch
from rlx_core.pipeline.select.dispatch import *

__all__ = [*dispatch.__all__]
