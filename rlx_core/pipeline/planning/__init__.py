"""From a legal graph to an execution plan: schedule, views, shared storage, offsets, and computations at binding.

`planner.py` has the steps in order; every other file is one step.
"""
