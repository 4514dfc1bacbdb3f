"""From a legal graph to an execution plan: schedule, views, shared storage, offsets, and what is computed once, at binding.

`planner.py` reads in the order of the work; every other file is one step of it.
"""
