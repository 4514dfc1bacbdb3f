"""Running programs: executables with bound parameters, compiled functions, sessions and the compile caches.

This layer passes arguments to compiled programs and caches the programs. Compilation belongs to the pipeline; the device
belongs to the backend.
"""
