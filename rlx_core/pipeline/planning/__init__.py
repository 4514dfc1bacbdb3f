"""From a legal graph to an execution plan: schedule, views, shared storage, offsets, and computations at binding.

`planner.py` has the steps in order; every other file is one step.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_modules

if TYPE_CHECKING:
    from rlx_core.pipeline.planning import planner, prepare

__all__ = ["planner", "prepare"]

if not TYPE_CHECKING:  # a program from a cache has its plan
    __getattr__, __dir__ = lazy_modules(__name__, __all__)
