"""Moving elements: whatever op is boxes (`boxes`), and windows whose place is computed (`windows`).

`mover` writes the loops of one box, `mover_rows` one row.
"""
