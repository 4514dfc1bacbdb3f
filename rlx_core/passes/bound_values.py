"""Values that are known once parameters are bound: what is computed from them alone is computed then, not on every run."""

from __future__ import annotations

from rlx_core.ir.graph import Constant, Input, Param, Value

__all__ = ["is_bound"]


def is_bound(value: Value) -> bool:
    """Whether `value` derives from parameters and constants alone, and from at least one of them, with sizes known.

    What the compiler later moves out of the program (`rlx_core.pipeline.prepare`) is of this kind.
    """
    seen = set()
    has_source = False
    stack = [value.node]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node.op, Input) or not node.op.is_pure or node.op.is_barrier:
            return False
        if not all(t.is_static for t in node.types):
            return False
        has_source = has_source or isinstance(node.op, Param | Constant)
        stack.extend(v.node for v in node.present())
    return has_source
