"""From a graph to an executable: configuration, passes in order, legalisation, schedule, memory plan, compile.

This layer defines the order of the stages and none of their contents: passes, rules, kernels and targets are looked up in the
registry by name. `config/` is the user's configuration, `select/` the choice of kernels, `planning/` the execution plan; the
driver, `compile.py` and `job.py`, is here. Packages import from `kernels`, `backend`, `dispatch` and `config_reading` of this
folder.
"""
