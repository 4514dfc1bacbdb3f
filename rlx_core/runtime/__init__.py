"""Running programs: executables with bound parameters, compiled functions, sessions and the compile caches.

This layer knows how a compiled program is fed and kept. How it was compiled is the pipeline's business, and what it runs on
is the backend's.
"""
