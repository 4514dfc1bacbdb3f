"""Table of the ATen ops with a handler: `python -m rlx_torch.coverage` prints the table of the README."""

from __future__ import annotations

from typing import Final

import torch

from rlx_torch.aten.table import TABLE

REASONS: Final = {
    "_local_scalar_dense.default": "`.item()`: a number that Python would go on with, known only when the program runs",
    "resize_.default": "changes the storage of its operand, of which functional programs have none",
}
"""Core ops without a handler, and why."""


def core_overloads() -> list[str]:
    """Return the overloads that torch tags as core ATen: the ops to which every exported program can be decomposed."""
    result = []
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        base, _, form = name.partition(".")
        packet = getattr(torch.ops.aten, base, None) if space == "aten" else None
        overload = form or "default"
        if packet is not None and overload in packet.overloads() and torch.Tag.core in getattr(packet, overload).tags:
            result.append(f"{base}.{overload}")
    return sorted(set(result))


def report() -> str:
    """Return how many core overloads are handled, and a line for each that is not."""
    core = core_overloads()
    handled = [name for name in core if name in TABLE]
    # Functions of `as_torch` are no ops of torch's, nor are Python's operators on sizes.
    ours = [name for name in TABLE if not name.startswith(("rlx::", "operator.", "math.", "torch."))]
    lines = [f"{len(handled)} of {len(core)} overloads of core ATen are handled, {len(ours)} overloads in all.", ""]
    lines += ["| not handled | because |", "|---|---|"]
    lines += [f"| `{name}` | {REASONS.get(name, 'no reason')} |" for name in core if name not in TABLE]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
