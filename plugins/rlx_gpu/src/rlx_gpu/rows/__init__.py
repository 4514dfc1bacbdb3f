"""The rows of the kernel table that every GPU language has: products, attention, lines, scatters, linear systems, spacings.

Each module registers the emitters of one kind of ops; loop kernels and movement are rows of `rlx_core.emit.table`.
"""
