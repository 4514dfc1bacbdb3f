"""The interface of a backend, for authors of one. (`select/backend.py`)"""

from rlx_core.pipeline.select import backend
from rlx_core.pipeline.select.backend import *

__all__ = [*backend.__all__]
