"""Donated arguments: which leaves of them a program may overwrite, and which of its results is the next value of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx_core.errors import Fact, UnknownNameError, nearest
from rlx_core.transforms.trace import Trace
from rlx_core.trees.flatten import function_name


def donations_of(
    what: str, function: Callable[..., Any], donate: Sequence[str], arguments: Mapping[str, Any], traced: Trace
) -> dict[str, int | None]:
    """Donated input → the output that is its next value, of a function that was traced; bound arguments have none.

    Raises:
        UnknownNameError: There is no such argument, or leaf of one.
    """
    leaves = [leaf.name for leaf in traced.leaves if leaf.role != "param"]
    for name in donate:
        if name not in arguments and not any(_is_under(leaf, [name]) for leaf in leaves):
            raise UnknownNameError(
                f"{what}: {function_name(function)} has no argument {name!r} to donate",
                Fact("arguments", ", ".join(arguments)),
                hint=nearest(name, [*arguments, *leaves]),
            )
    donated = [leaf.name for leaf in traced.leaves if leaf.role == "input" and _is_under(leaf.name, donate)]
    return _next_values(donated, traced)


def _is_under(name: str, roots: Sequence[str]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


def _next_values(donated: Sequence[str], traced: Trace) -> dict[str, int | None]:
    """The output of the same type, and best of the same name.

    `params.w1` is continued by `result.0.w1` rather than by another matrix that happens to have its type.
    """
    outputs = list(zip(traced.results.names, traced.graph.outputs, strict=True))
    taken: set[int] = set()
    result: dict[str, int | None] = {}
    for name in donated:
        expected = traced.graph.input_types[name]
        fitting = [i for i, (_, v) in enumerate(outputs) if v.type == expected and i not in taken]
        tail = name.rpartition(".")[2]
        best = min(fitting, key=lambda i: outputs[i][0].rpartition(".")[2] != tail, default=None)
        result[name] = best
        taken |= {best} if best is not None else set()
    return result
