"""Loops and choices as native code: a step that holds graphs is one function, and the functions of their steps are called in it.

`making.py` has the functions of a graph's plan made, `bodies.py` lays out the table of addresses that they are called with, and
`emit.py` goes round the loop. A body's plan lies in the workspace of the step, as the planner has it.
"""
