"""Sorting rows (`sorting`) and searching in sorted ones (`search`), both by the keys of `order_keys`.

`ranks` orders short rows, `radix` long ones, and `selection` computes top-k or a thread's slice of a row.
"""
