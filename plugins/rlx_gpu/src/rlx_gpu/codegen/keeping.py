"""The values that a loop over a row computes before it begins, and those kept in registers for later loops."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rlx_core.codegen.loops import Kernel, Load, Reduce, operands_of
from rlx_core.codegen.schedule import Nest, is_expensive


def uniform_values(kernel: Kernel, nest: Nest, known: Collection[int]) -> tuple[int, ...]:
    """Values that a loop needs, that are one per row, and that are not known yet; operands first."""
    uniform: set[int] = set()
    waiting = _roots(kernel, nest)
    while waiting:
        v = waiting.pop()
        if v not in uniform and v not in known:
            uniform.add(v)
            waiting += operands_of(kernel.values[v])
    return tuple(v for v in sorted(uniform) if not kernel.varies[v])


def kept_values(kernel: Kernel, nests: Sequence[Nest], depth: int, stored: Collection[int]) -> tuple[int, ...]:
    """Return values that a loop computes and later loops need, as close to their use as possible: loads and expensive values.

    Cheap values are recomputed from those; values `stored` by an earlier loop are available already.
    """
    now: set[int] = set()
    waiting = _roots(kernel, nests[depth])
    while waiting:
        v = waiting.pop()
        if v not in now and v not in stored and kernel.varies[v]:
            now.add(v)
            waiting += operands_of(kernel.values[v])
    values: set[int] = set()
    seen: set[int] = set()
    waiting = [v for nest in nests[depth + 1 :] for v in _roots(kernel, nest)]
    while waiting:
        v = waiting.pop()
        term = kernel.values[v]
        if v in seen or v in stored or not kernel.varies[v] or isinstance(term, Reduce):
            continue
        seen.add(v)
        if v in now and (isinstance(term, Load) or is_expensive(term)):
            values.add(v)
        else:
            waiting += operands_of(term)
    return tuple(sorted(values))


def _roots(kernel: Kernel, nest: Nest) -> list[int]:
    """The values that a loop is for."""
    arguments = [a for r in nest.reduces for a in operands_of(kernel.values[r])]
    return arguments + [kernel.stores[s].value for s in nest.stores]
