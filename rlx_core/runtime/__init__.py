"""Compiled programs in use: executables that check and run, functions that compile on first call, caches that remember.

This layer knows programs, arrays and files. It does not know how a program was optimised or what its steps compute.
"""
