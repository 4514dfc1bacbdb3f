"""`checkpoint`: a function whose reverse derivative recomputes its values instead of saving them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from rlx_core.errors import ConfigError
from rlx_core.functions.checkpoint_policies import Policy, everything_saveable, nothing_saveable
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.graph import Graph, Value, ambient_builder, as_results
from rlx_core.ops.derivatives.checkpoint import Checkpoint, CheckpointName
from rlx_core.transforms.graphs import pruned
from rlx_core.transforms.lifting import Arguments, closed, current_builder, traced
from rlx_core.trees.flatten import bind_arguments, expect_function, function_name

P = ParamSpec("P")
R = TypeVar("R")


@checked_call
def checkpoint(function: Callable[P, R], policy: Policy | None = None) -> Callable[P, R]:
    """`function`, whose reverse derivative saves only the arguments and recomputes other values that it needs.

    This costs a second evaluation, and frees the memory in between. The mathematics are the same; if a policy saves values,
    other operations may be fused, which changes rounding.

    Args:
        function: Any function of pytrees of arrays.
        policy: Which further values are saved: one of `rlx.checkpoint_policies`, or a function of a node; by default none.

    Raises:
        TraceError: The argument is not a function.
        ConfigError: The policy is not a policy.

    >>> f = rlx.checkpoint(lambda x: rlx.sin(rlx.exp(x)))
    >>> rlx.grad(f)(np.float32(0))
    Array(0.5403023, dtype=float32)
    """
    expect_function("checkpoint", function)
    chosen = nothing_saveable if policy is None else policy
    if not callable(chosen):
        raise ConfigError(
            f"checkpoint: policy is {policy!r}, not a function of a node", hint="rlx.checkpoint_policies.dots_saveable"
        )

    @functools.wraps(function)
    def checkpointed(*args: P.args, **kwargs: P.kwargs) -> R:
        if ambient_builder() is None or chosen is everything_saveable:
            return function(*args, **kwargs)
        named = bind_arguments(function, args, kwargs)
        arguments = Arguments.of(current_builder("checkpoint"), named)

        def call(leaves: list[Any]) -> Any:
            values = arguments.unflatten(leaves)
            by_name = {k: values.pop(k) for k in named if k in kwargs}
            return function(*values.values(), **by_name)

        traced_body = traced(function_name(function), arguments.leaves, call)
        captured = list(dict.fromkeys(traced_body.captures.values()))
        body = closed(traced_body, arguments.leaves, captured)
        residuals = saved_values(body, chosen)
        body = pruned(body, [*body.outputs, *residuals], effects=[n for n in body.nodes if not n.op.is_pure])
        results = as_results(Checkpoint(body, len(residuals))(*arguments.operands, *captured))
        returned: R = traced_body.results.unflatten(results[: len(results) - len(residuals)])
        return returned

    return checkpointed


def saved_values(body: Graph, policy: Policy) -> list[Value]:
    """Return the values of a body that a policy saves; for a named value, the value before it was named."""
    chosen = (v for node in body.nodes if not node.is_leaf and policy(node) for v in node.results)
    return [v for v in dict.fromkeys(map(unnamed, chosen)) if not v.node.is_leaf]


def unnamed(value: Value) -> Value:
    """Return the value before it was named: the derivative of the op that computed it reads that one."""
    while isinstance(value.node.op, CheckpointName):
        (value,) = value.node.present()
    return value


@checked_call
def checkpoint_name(x: Any, name: str) -> Any:
    """`x`, with a name by which `rlx.checkpoint_policies.save_only_these_names` selects it.

    >>> def layer(x):
    ...     return rlx.sin(rlx.checkpoint_name(rlx.exp(x), "hidden"))
    >>> f = rlx.checkpoint(layer, rlx.checkpoint_policies.save_only_these_names("hidden"))
    >>> rlx.grad(f)(np.float32(0))
    Array(0.5403023, dtype=float32)
    """
    return CheckpointName(name)(x)
