"""Optimisers by the names of their papers, each a chain of transformations that ends with a negative rate.

A rate is a number, an array, or a schedule. State is f32 for 16-bit parameters and otherwise of their dtype, unless an argument
sets another dtype.
"""

from __future__ import annotations

from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import DType
from rlx_core.optim.clipping import add_decayed_weights
from rlx_core.optim.masking import Mask
from rlx_core.optim.numbers import Rate
from rlx_core.optim.scaling import (
    scale_by_adam,
    scale_by_learning_rate,
    scale_by_lion,
    scale_by_rms,
    scale_by_rss,
    scale_by_stddev,
    trace,
)
from rlx_core.optim.transformation import GradientTransformation, chain, described, identity

__all__ = ["adagrad", "adam", "adamw", "lion", "rmsprop", "sgd"]


@checked_call
@described
def sgd(learning_rate: Rate, momentum: float | None = None, nesterov: bool = False) -> GradientTransformation:
    """Stochastic gradient descent: `p - rate·t` with `t = g + momentum·t`.

    Args:
        learning_rate: The rate, or a schedule.
        momentum: In [0, 1), or none.
        nesterov: Whether `g + momentum·t` of the new t is taken (Sutskever 2013).

    >>> optimiser = sgd(0.5)
    >>> params = np.float32([1, 2])
    >>> updates, state = optimiser.update(np.float32([2, 2]), optimiser.init(params), params)
    >>> rlx.optim.apply_updates(params, updates)
    Array([0., 1.], dtype=float32)
    """
    inertia = identity() if momentum is None else trace(momentum, nesterov)
    return chain(inertia, scale_by_learning_rate(learning_rate))


@checked_call
@described
def adam(
    learning_rate: Rate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: DType | str | None = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Adam: `p - rate·m/(√(v + eps_root) + eps)` of debiased averages; see `scale_by_adam`."""
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov), scale_by_learning_rate(learning_rate)
    )


@checked_call
@described
def adamw(
    learning_rate: Rate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: DType | str | None = None,
    weight_decay: float = 1e-4,
    mask: Mask | None = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Adam with decoupled weight decay: `p - rate·(adam(g) + weight_decay·p)`.

    Args:
        learning_rate, b1, b2, eps, eps_root, mu_dtype, nesterov: As for `adam`.
        weight_decay: The decay of a parameter per step, multiplied by the rate.
        mask: Which parameters decay, as a tree of booleans or a function of the parameters; all by default.

    Source:
        Loshchilov, Hutter 2019, "Decoupled Weight Decay Regularization", arXiv:1711.05101, algorithm 2.
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


@checked_call
@described
def lion(
    learning_rate: Rate,
    b1: float = 0.9,
    b2: float = 0.99,
    mu_dtype: DType | str | None = None,
    weight_decay: float = 1e-3,
    mask: Mask | None = None,
) -> GradientTransformation:
    """Lion: `p - rate·(sign(b1·m + (1 - b1)·g) + weight_decay·p)`; see `scale_by_lion`."""
    return chain(
        scale_by_lion(b1, b2, mu_dtype),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


@checked_call
@described
def rmsprop(
    learning_rate: Rate,
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    centered: bool = False,
    momentum: float | None = None,
    nesterov: bool = False,
) -> GradientTransformation:
    """RMSProp: `p - rate·g/√(v + eps)`, with momentum on the subtracted term.

    PyTorch adds `eps` outside the root, and decays with `alpha=0.99` by default.

    Args:
        learning_rate: The rate, or a schedule.
        decay: The decay of the average v of squared gradients.
        eps: Added inside the root.
        initial_scale: The initial value of v.
        centered: Whether the square of the average gradient is subtracted from v.
        momentum, nesterov: As for `sgd`.
    """
    scaled = scale_by_stddev(decay, eps, initial_scale) if centered else scale_by_rms(decay, eps, initial_scale)
    inertia = identity() if momentum is None else trace(momentum, nesterov)
    return chain(scaled, scale_by_learning_rate(learning_rate), inertia)


@checked_call
@described
def adagrad(learning_rate: Rate, initial_accumulator_value: float = 0.1, eps: float = 1e-7) -> GradientTransformation:
    """AdaGrad: `p - rate·g/√(s + eps)` of the sum s of squared gradients; see `scale_by_rss`."""
    return chain(scale_by_rss(initial_accumulator_value, eps), scale_by_learning_rate(learning_rate))
