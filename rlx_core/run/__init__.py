"""The executor: running planned programs, generic over the memory that values lie in and over the code that steps run as.

`plan.py` describes a program as data, `memory.py` is the interface of memories, `code.py` the interface of a target's code, and
`program.py` runs a program.
"""
