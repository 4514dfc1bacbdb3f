"""The executor: running planned programs, generic over the memory that values lie in and over the code that steps run as.

`plan.py` has a program as data, `memory.py` what a memory offers, `code.py` what a target's code offers, `program.py` the
program itself.
"""
