"""Ops that draw: words of a counter-based generator, bits of a shape, and dropout.

`RandomWord` is the only primitive. Everything else is a meaning in ops that exist, so that drawing, converting and using numbers
is one kernel. Keys are u32[2] here; that they are no numbers, users are told by `rlx_core.random`.
"""
