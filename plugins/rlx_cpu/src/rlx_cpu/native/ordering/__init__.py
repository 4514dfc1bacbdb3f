"""Sorting rows (`sorting`) and searching in sorted ones (`search`), both by the keys of `order_keys`.

`ranks` orders short rows, `radix` long ones, and `selection` finds the few that are wanted (top-k select) or a thread's slice.
"""
