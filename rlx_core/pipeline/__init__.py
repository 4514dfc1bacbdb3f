"""From a graph to an executable: configuration, passes in order, legalisation, schedule, memory plan, compile.

This layer knows the shape of the road and none of its stations: passes, rules, kernels and targets are read from the
registry by name.
"""
