"""ATen in rlx: a handler for each overload, in a file for each family.

A handler implements the semantics of an op; it depends neither on torch, which these files do not import, nor on the origin of
its operands. `rlx_torch.walk` traverses graphs, and `rlx_torch.exported` reads exported programs.
"""
