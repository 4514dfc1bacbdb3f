"""Loop kernels: from the loop language of `rlx_core.codegen` to explicit vectors.

`rows` registers them, `printer` writes one. `walk` decides how a kernel is walked, `units` finds a unit's place, `nests` writes
the loops over its row, `bands` those over tiles. In them stand `values`, `memory`, `tiles`, `totals`, `reductions` and `partial`.
"""
