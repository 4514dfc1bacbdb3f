"""From a graph to an executable: configuration, passes in order, legalisation, schedule, memory plan, compile.

This layer defines the order of the stages and none of their contents: passes, rules, kernels and targets are looked up in the
registry by name. `config/` is the user's configuration, `planning/` the execution plan; the driver, `compile.py` and `job.py`,
and the choice of kernels, `kernels.py` and `dispatch.py`, are here. Packages import from `kernels`, `backend`, `dispatch` and
`config_reading` of this folder.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_modules

if TYPE_CHECKING:
    from rlx_core.pipeline import deferred, dispatch, dynamic, interpreted, legalize, plan, planning, profile, showing

__all__ = ["deferred", "dispatch", "dynamic", "interpreted", "legalize", "plan", "planning", "profile", "showing"]

if not TYPE_CHECKING:  # a program from a cache needs none of them
    __getattr__, __dir__ = lazy_modules(__name__, __all__)
