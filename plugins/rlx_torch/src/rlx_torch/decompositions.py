"""The ops that torch decomposes before rlx receives a graph: exactly those without a handler."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._decomp import decomposition_table

from rlx_torch.aten.table import TABLE
from rlx_torch.walk import name_of


@cache
def for_autograd() -> dict[Any, Callable[..., Any]]:
    """Torch's decompositions of ops without a handler, as `aot_autograd` takes them."""
    known = decomposition_table.items()
    return {op: rule for op, rule in known if isinstance(op, torch._ops.OpOverload) and name_of(op) not in TABLE}


def for_export() -> dict[Any, Callable[..., Any]]:
    """The same for `run_decompositions`, with those of composite ops."""
    table = torch.export.default_decompositions()
    for op in list(table):
        if name_of(op) in TABLE:
            del table[op]
    for op, rule in for_autograd().items():
        if op not in table:
            table[op] = rule
    return table
