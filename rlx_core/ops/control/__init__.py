"""Control flow as ops that contain graphs: a choice (`If`), a loop with a condition (`While`), a loop over steps (`Scan`).

A body sees only its operands; a capture of a Python function becomes an operand. Derivatives and batches of these ops are again
such ops, over derivatives and batches of their bodies, so a program's size does not depend on the number of iterations.
"""
