"""From a graph to an executable: configuration, passes in order, legalisation, schedule, memory plan, compile.

This layer knows the shape of the road and none of its stations: passes, rules, kernels and targets are read from the
registry by name. `config/` is what a user may say, `select/` who runs a node, `planning/` the execution plan; the road itself,
`compile.py` and `job.py`, is here. Packages import from `kernels`, `backend`, `dispatch` and `config_reading` of this folder.
"""
