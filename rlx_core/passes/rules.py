"""The interface of rewrite rules, for authors: a left side, a right side, and their licence. (`engine/rules.py`)"""

from rlx_core.passes.engine import rules
from rlx_core.passes.engine.rules import *

__all__ = [*rules.__all__]
