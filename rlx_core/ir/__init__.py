"""The intermediate representation: types, ops, graphs, and their invariants.

This layer knows how an op is written and how graphs of ops are built, checked, printed, stored and evaluated. It knows
no op by name except the three leaves (input, param, constant), no pass and no device.
"""
