"""The interface of a pass, for authors: `Pass`, its `Context` and its `Result`. (`engine/base.py`)"""

from rlx_core.passes.engine import base
from rlx_core.passes.engine.base import *

__all__ = [*base.__all__]
