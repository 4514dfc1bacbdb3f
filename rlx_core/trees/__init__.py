"""Nested containers of arrays (pytrees): flattening to named leaves, rebuilding, and serialising the structure.

This layer knows containers and names. The leaves, arrays or traced values, are opaque to it.
"""
