"""Control flow as ops that hold graphs: a choice (`If`), a loop until a condition fails (`While`), a loop over steps (`Scan`).

A body sees only its operands; what a Python function captures becomes one. Derivatives and batches of these ops are such ops
again, over derivatives and batches of their bodies, so a program's size does not depend on how often it goes round.
"""
