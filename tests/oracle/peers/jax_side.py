"""A case computed by JAX in float64, as one compiled function: values, gradients, directional derivatives, a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .answers import Answers
from .arguments import is_inexact, taken_apart

__all__ = ["answers", "types"]


def weighted(results: Sequence[Any], weights: Sequence[Any]) -> Any:
    """The sum of all elements times their weights; both parts of a complex one count."""
    return sum((jnp.conj(r) * w).real.sum() for r, w in zip(results, weights, strict=True))


def answers(
    function: Callable[..., Any],
    examples: Sequence[Sequence[Any]],
    tangents: Sequence[np.ndarray],
    cotangents: Sequence[np.ndarray],
    asks: frozenset[str],
) -> Answers:
    """What is asked of the function; the first example is the one that is differentiated."""
    arguments = taken_apart(examples[0])
    by = tuple(range(len(arguments.smooth)))

    def everything(every: Any, points: Any, directions: Any, weights: Any) -> dict[str, Any]:
        def results(*values: Any) -> list[Any]:
            return list(jax.tree.leaves(function(*arguments.at(values, every[0]))))

        def smooth(*values: Any) -> list[Any]:
            return [r for r in results(*values) if is_inexact(r.dtype)]

        gradients = jax.grad(lambda *values: weighted(smooth(*values), weights), by)
        found: dict[str, Any] = {"forward": results(*points)}
        if "gradient" in asks:
            # JAX's gradient by a complex z is twice the derivative by z; ours is the one by its conjugate.
            found["gradient"] = [jnp.conj(g) / 2 if jnp.iscomplexobj(g) else g for g in gradients(*points)]
        if "jvp" in asks:
            found["jvp"] = jax.jvp(smooth, tuple(points), tuple(directions))[1]
        if "second" in asks:
            found["second"] = jax.grad(lambda *values: weighted(gradients(*values), directions), by)(*points)
        if "batch" in asks:
            stacked = [jnp.stack(each) for each in zip(*every, strict=True)]
            found["batch"] = jax.vmap(lambda *each: jax.tree.leaves(function(*arguments.whole(each))))(*stacked)
        return found

    with jax.enable_x64(True):
        every = [[jnp.asarray(x) for x in taken_apart(args).leaves] for args in examples]
        found = jax.jit(everything)(every, [every[0][i] for i in arguments.smooth], list(tangents), list(cotangents))
        return {question: [np.asarray(x) for x in values] for question, values in found.items()}


def types(function: Callable[..., Any], args: Sequence[Any]) -> list[tuple[tuple[int, ...], str]] | None:
    """Dims and dtypes of the results for arguments as they are."""
    with jax.enable_x64(True):
        found = jax.eval_shape(function, *args)
        return [(tuple(leaf.shape), str(leaf.dtype)) for leaf in jax.tree.leaves(found)]
