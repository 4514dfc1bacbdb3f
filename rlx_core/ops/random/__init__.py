"""Random ops: words of a counter-based generator, bits of a shape, and dropout.

`RandomWord` is the only primitive. Everything else is composed of existing ops, so that generating, converting and using
numbers is one kernel. Keys are u32[2] here; for users, `rlx_core.random` has an opaque key type.
"""
