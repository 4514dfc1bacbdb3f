"""Transformations around others: updates every few steps, only if they are finite, or with numbers that can be changed.

A program has no branches in these, so the inner transformation is computed in every step and its results are selected from.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.array import is_array
from rlx_core.ops.arguments import whole
from rlx_core.optim.transformation import GradientTransformation, Transformation, transformation
from rlx_core.optim.trees import chosen, each, next_count, wide, zeros_like
from rlx_core.trees.flatten import flatten

__all__ = [
    "ApplyIfFiniteState",
    "InjectHyperparamsState",
    "MultiStepsState",
    "all_finite",
    "apply_if_finite",
    "inject_hyperparams",
    "multi_steps",
]


class MultiStepsState(NamedTuple):
    """The average of the gradients so far, their number, the number of updates made, and the inner state."""

    mini_step: Any
    gradient_step: Any
    inner_state: Any
    acc_grads: Any


class ApplyIfFiniteState(NamedTuple):
    """The number of consecutive skipped updates, whether the last one was applied, the total number skipped, the inner state."""

    notfinite_count: Any
    last_finite: Any
    total_notfinite: Any
    inner_state: Any


class InjectHyperparamsState(NamedTuple):
    """Steps taken, the numbers by name, each f32, and the inner state."""

    count: Any
    hyperparams: dict[str, Any]
    inner_state: Any


@checked_call
def multi_steps(inner: Transformation, every_k: int) -> GradientTransformation:
    """Updates of 0, and after every `every_k` gradients the update of `inner` for their mean.

    Raises:
        ConfigError: `every_k` is not an integer of at least 1.
    """
    part, k = transformation("multi_steps", inner), whole("multi_steps: every_k", every_k, least=1)

    def init(params: Any) -> MultiStepsState:
        return MultiStepsState(np.int32(0), np.int32(0), part.init(params), zeros_like(params))

    def update(grads: Any, state: MultiStepsState, params: Any = None) -> tuple[Any, MultiStepsState]:
        step = state.mini_step + np.int32(1)
        # A running mean instead of a sum of k gradients, which could overflow.
        mean = each("multi_steps", lambda a, g: a + (g - a) / rlx.astype(step, g.dtype), state.acc_grads, grads)
        is_last = step >= np.int32(k)
        updates, inner_state = part.update(mean, state.inner_state, params)
        new = MultiStepsState(
            rlx.where(is_last, np.int32(0), step),
            rlx.where(is_last, next_count(state.gradient_step), state.gradient_step),
            chosen(is_last, inner_state, state.inner_state),
            each("multi_steps", lambda a: rlx.where(is_last, 0.0, a), mean),
        )
        return each("multi_steps", lambda u: rlx.where(is_last, u, 0.0), updates), new

    return GradientTransformation(init, update)


@checked_call
def all_finite(tree: Any) -> Any:
    """Return whether no element of any leaf is infinite or NaN."""
    result: Any = np.True_
    for leaf in flatten(tree)[0]:
        result = rlx.logical_and(result, rlx.all(rlx.isfinite(wide(leaf))))
    return result


@checked_call
def apply_if_finite(inner: Transformation, max_consecutive_errors: int) -> GradientTransformation:
    """`inner`, except for gradients that are not finite, whose updates are 0 and which do not change its state.

    After `max_consecutive_errors` of them in a row the next ones are applied, so that training does not stop unnoticed.
    """
    part = transformation("apply_if_finite", inner)
    limit = whole("apply_if_finite: max_consecutive_errors", max_consecutive_errors, least=0)

    def init(params: Any) -> ApplyIfFiniteState:
        return ApplyIfFiniteState(np.int32(0), np.True_, np.int32(0), part.init(params))

    def update(grads: Any, state: ApplyIfFiniteState, params: Any = None) -> tuple[Any, ApplyIfFiniteState]:
        is_finite = all_finite(grads)
        row = rlx.where(is_finite, np.int32(0), next_count(state.notfinite_count))
        passes = rlx.logical_or(is_finite, row > np.int32(limit))
        updates, inner_state = part.update(grads, state.inner_state, params)
        total = rlx.where(is_finite, state.total_notfinite, next_count(state.total_notfinite))
        return each("apply_if_finite", lambda u: rlx.where(passes, u, 0.0), updates), ApplyIfFiniteState(
            row, is_finite, total, chosen(passes, inner_state, state.inner_state)
        )

    return GradientTransformation(init, update)


@checked_call
def inject_hyperparams(
    factory: Callable[..., Transformation], static_args: str | Collection[str] = ()
) -> Callable[..., GradientTransformation]:
    """The factory of an optimiser whose numbers are part of its state, where they can be changed between steps.

    Otherwise, a number is a constant of a compiled step, and another value means another program. In the state it is an f32
    array: `state.hyperparams["learning_rate"] = np.float32(1e-4)`. The value of a schedule is computed at each step, and can be
    read.

    Args:
        factory: A factory such as `rlx.optim.adamw`.
        static_args: Names of arguments that are not injected.

    Raises (on the call):
        ConfigError: The factory has no such argument, or there is nothing to inject.
    """
    fixed = {static_args} if isinstance(static_args, str) else set(static_args)

    def make(*args: Any, **kwargs: Any) -> GradientTransformation:
        try:
            bound = inspect.signature(factory).bind(*args, **kwargs)
        except TypeError as error:
            raise ConfigError(f"inject_hyperparams: {error}") from None
        bound.apply_defaults()
        arguments = {n: v for n, v in bound.arguments.items() if n not in fixed}
        schedules = {n: v for n, v in arguments.items() if callable(v)}
        numbers = {n: v for n, v in arguments.items() if isinstance(v, float | int) or is_array(v)}
        numbers = {n: v for n, v in numbers.items() if not isinstance(v, bool | np.bool_)}

        def at(count: Any, hyperparams: dict[str, Any]) -> dict[str, Any]:
            return hyperparams | {n: rlx.astype(s(count), rlx.f32) for n, s in schedules.items()}

        def inner(hyperparams: dict[str, Any]) -> Transformation:
            return factory(**{**bound.arguments, **hyperparams})

        def init(params: Any) -> InjectHyperparamsState:
            count = np.int32(0)
            known = at(count, {n: np.asarray(v, np.float32) for n, v in numbers.items()})
            return InjectHyperparamsState(count, known, inner(known).init(params))

        def update(grads: Any, state: InjectHyperparamsState, params: Any = None) -> tuple[Any, InjectHyperparamsState]:
            known = at(state.count, state.hyperparams)
            updates, inner_state = inner(known).update(grads, state.inner_state, params)
            return updates, InjectHyperparamsState(next_count(state.count), known, inner_state)

        return GradientTransformation(init, update)

    return make
