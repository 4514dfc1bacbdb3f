"""Process and machine: locks, the processor's floating-point modes, private files and caches, the terminal.

This layer does not depend on programs, ops or plugins; it imports only errors from rlx.
"""
