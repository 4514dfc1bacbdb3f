"""Convolutions: products of a kernel with every window of the trailing axes of `[n, c, ..]`.

All ops are built from two movements that are transposes of one another: reading strided windows (`sliding.py`) and adding
overlapping windows; padding is a separate op before them. Channels-last layouts are transposes, added by the functions of
`rlx_core.nn`.
"""
