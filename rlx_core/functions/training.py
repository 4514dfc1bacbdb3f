"""`train_step`: a loss, its gradients and an update as one program that updates parameters and state in place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_core.functions import functional
from rlx_core.hints.keywords import checked_call
from rlx_core.ops.arguments import flag
from rlx_core.optim.transformation import Transformation, apply_updates, transformation
from rlx_core.pipeline.backend import Outputs
from rlx_core.pipeline.compile import Config
from rlx_core.pipeline.set_up import with_precision
from rlx_core.plugins import PluginHost
from rlx_core.runtime.jit import Jitted
from rlx_core.trees.flatten import expect_function, function_name

STATE = "state"


@runtime_checkable
class ScalesLoss(Protocol):
    """An optimiser that takes the gradients of the loss multiplied by a scale, which is part of its state."""

    def loss_scale(self, state: Any, /) -> Any: ...


@checked_call
def train_step(
    loss: Callable[..., Any],
    optimiser: Transformation,
    *,
    has_aux: bool = False,
    donate: bool = True,
    target: str | None = None,
    precision: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    outputs: Outputs | None = None,
) -> Jitted[..., Any]:
    """One step of training as one program: `step(params, state, *batch) -> (params, state, loss)`.

    The update is fused with the gradient if the target can: after the product that computes the gradient of a weight, no
    gradient is stored. Updates that need all gradients at once, such as a clip by their global norm or a scaled loss, store
    them.

    Args:
        loss: `loss(params, *batch)`, one real scalar; with `has_aux`, a pair of it and anything else.
        optimiser: From `rlx.optim`, or anything with its `init` and `update`; `state` begins as `optimiser.init(params)`.
            If it scales losses (`rlx.optim.dynamic_loss_scale`), so does the step; the returned loss is the unscaled one.
        has_aux: Whether the step returns `(params, state, (loss, aux))`.
        donate: Whether the arrays of `params` and `state` are overwritten and returned; the originals must not be used again.
        target, precision, config, host: As for `rlx.jit`. Parameters and their updates stay in f32 whatever the precision.
        outputs: As for `rlx.jit`; with `donate` results stay on the device by default, so that later steps transfer only the
            batch.

    Raises:
        ConfigError: The optimiser has no `init` and `update`, an argument of the loss has the name of the state, or the precision
            is not known.

    >>> step = train_step(lambda w, x: rlx.sum((w - x) ** 2), rlx.optim.sgd(0.25))
    >>> w, state, value = step(np.float32([1, 2]), rlx.optim.sgd(0.25).init(np.float32([1, 2])), np.float32([3, 4]))
    >>> w, value
    (Array([2., 3.], dtype=float32), Array(8., dtype=float32))
    """
    expect_function("train_step", loss)
    rule = transformation("train_step", optimiser)
    flag("train_step: has_aux", has_aux)
    donated = flag("train_step: donate", donate)
    config = with_precision("train_step", config, precision, host)

    def scaled(params: Any, factor: Any, batch: Any, named: Any) -> tuple[Any, Any]:
        returned = loss(params, *batch, **named)
        value = returned[0] if has_aux else returned
        return (value if factor is None else value * rlx.astype(factor, value.dtype)), returned

    def step(params: Any, state: Any, *batch: Any, **named: Any) -> Any:
        factor = rule.loss_scale(state) if isinstance(rule, ScalesLoss) else None
        (_, returned), grads = functional.value_and_grad(scaled, has_aux=True)(params, factor, batch, named)
        updates, state = rule.update(grads, state, params)
        return apply_updates(params, updates), state, returned

    named = functools.wraps(loss)(step)
    named.__name__ = f"train_step_{function_name(loss)}"
    signature, first = _signature(loss)
    named.__signature__ = signature  # type: ignore[attr-defined]  # names the leaves in errors and reports
    options = {"target": target, "config": config, "host": host}
    recipe = functools.partial(
        train_step,
        loss,
        optimiser,
        has_aux=has_aux,
        donate=donate,
        target=target,
        config=config,
        host=host,
        outputs=outputs,
    )
    donations = (first, STATE) if donated else ()
    return Jitted(named, options, donations, recipe, outputs, prefers_device=donated)


def _signature(loss: Callable[..., Any]) -> tuple[inspect.Signature, str]:
    """Return the signature of a step (the loss's, with the state after the parameters) and the name of the parameters.

    Raises:
        ConfigError: The loss takes no parameters, or another argument has the name of the state.
    """
    signature = inspect.signature(loss)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    first, *others = signature.parameters.values() or (None,)
    if first is None or first.kind not in kinds:
        raise ConfigError(f"train_step: {function_name(loss)}{signature} takes no parameters by position")
    if STATE in signature.parameters:
        raise ConfigError(
            f"train_step: {function_name(loss)}{signature} has an argument {STATE!r}, which is the optimiser's here",
            hint="call it otherwise",
        )
    state = inspect.Parameter(STATE, first.kind)
    return signature.replace(parameters=[first.replace(default=first.empty), state, *others]), first.name
