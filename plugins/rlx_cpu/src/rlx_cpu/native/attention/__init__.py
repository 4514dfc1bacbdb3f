"""Attention, forward and backward, and the rotary embedding of its operands (`rope`).

`cut` and `plan` contain the decisions that both directions share, `forward_plan` and `backward_plan` the others. The modules
named after a direction's products, rows and bias write its code; `operands` and `parts` are shared.
"""
