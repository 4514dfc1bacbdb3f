"""Convolution and its family: products of a kernel with every window of the trailing axes of `[n, c, ..]`.

Everything is made of two movements that are one another's transposes, windows read at steps (`sliding.py`) and windows
added up where they overlap; padding is an op of its own in front of them. Layouts with the channels last are transposes, made
by the functions of `rlx_core.nn`.
"""
