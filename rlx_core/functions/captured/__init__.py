"""Captured values of staged transforms: values that a function reads besides its arguments, and guards that detect changes.

`analysis.py` lists the names that a code object reads, `walk.py` follows them to objects, `guards.py` compares those objects
with what they were. `docs/decisions/0052-captured-values.md` gives the reasons.
"""

from rlx_core.functions.captured.guards import Guards
from rlx_core.functions.captured.walk import MAX_GUARDS, Captured, captured_values

__all__ = ["MAX_GUARDS", "Captured", "Guards", "captured_values"]
