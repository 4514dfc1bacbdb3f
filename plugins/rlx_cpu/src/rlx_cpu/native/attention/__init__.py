"""Attention, forward and backward, and the rotary embedding of what goes into it (`rope`).

`cut` and `plan` are what both directions decide alike, `forward_plan` and `backward_plan` the rest; the modules named after
a direction's products, rows and bias write its code, with `operands` and `parts` for what both share.
"""
