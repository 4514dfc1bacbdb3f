"""Nested containers of arrays (pytrees): flattened to named leaves, put together again, and written down.

This layer knows containers and names. The leaves, arrays or traced values, are opaque to it.
"""
