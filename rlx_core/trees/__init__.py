"""Nested containers of arrays (pytrees): flattened to named leaves, put together again, and written down.

This layer knows containers and names. What the leaves are, arrays or traced values, is their user's business.
"""
