"""The process and the machine that rlx runs in: locks, the processor's modes, files and caches of its own, the terminal.

This layer knows no program, no op and no plugin; errors are all that it imports of rlx.
"""
