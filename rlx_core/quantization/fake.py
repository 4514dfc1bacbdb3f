"""Values rounded to codes and back in floats, with derivatives that are declared: quantisation in training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import rlx_core as rlx
from rlx_core.errors import ConfigError, DtypeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import product
from rlx_core.ir.dtypes import DType
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.ops.arguments import choice, flag, number, whole
from rlx_core.ops.linalg import operand
from rlx_core.quantization.linear import Axes, along, axes_of, wide_of

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

Estimator = Literal["identity", "clipped", "tanh", "hard_tanh"]
Mode = Literal["batch", "average", "fixed"]
SMALLEST = 1e-12
"""The smallest scale, so that a tensor of zeros has one."""


@checked_call
def fake_quantize(
    x: ArrayLike,
    state: ArrayLike | None = None,
    *,
    bits: int = 8,
    axis: Axes = None,
    straight_through: Estimator = "identity",
    mode: Mode = "batch",
    decay: float = 0.9,
    is_training: bool = True,
) -> tuple[Array, Array, Array | None]:
    """x rounded to the nearest code of a symmetric range and back: `round(clip(x/s, -q, q)) · s` with `q = 2^(bits-1) - 1`.

    The scale s and the state are constants for derivatives. Where x is NaN, so are y and, except for `identity`, the derivative.
    In the modes that measure x, its elements have to be finite: an infinity makes the scale infinite and y NaN.

    Args:
        x: `f[..]`.
        state: The scale that earlier calls returned, `f[]` or `f[n]` along `axis`. `None` starts an average.
        bits: The width of a code, 2 to 16.
        axis: The axis along which scales differ, or several. By default there is one scale.
        straight_through: The factor of dy in the derivative with respect to x: 1 (`identity`), 1 where `|x| ≤ q·s` and 0
            elsewhere (`clipped`), `1 - tanh²(x/s)` (`tanh`), or `max(0, 1 - |x/(q·s)|)` (`hard_tanh`).
        mode: `batch` measures the scale of this x, `max |x| / q`; `average` uses `decay·state + (1-decay)·measured` in training
            (the measured scale if the state is not positive) and the state otherwise; `fixed` uses the state.
        decay: The share of the state in an average, 0 to 1.
        is_training: Whether an average is updated.

    Returns:
        y like x; the scale, f32 or f64, `[]` or `[n]`, at least 1e-12; and the next state: `state` itself, unless an average
        is updated.

    Raises:
        DtypeError: x is no array of floats.
        ShapeError: The state does not have the shape of the scale.
        ConfigError: An option is unknown or out of range, or the mode needs a state.

    >>> y, scale, _ = rlx.quantization.fake_quantize(np.float32([-1, 0.2, 1]), bits=2)
    >>> y.tolist(), float(scale)
    ([-1.0, 0.0, 1.0], 1.0)

    Source:
        Jacob et al. 2018, "Quantization and training of neural networks for efficient integer-arithmetic-only inference",
        arXiv:1712.05877; straight-through estimators: Bengio et al. 2013, arXiv:1308.3432.
    """
    data, wide = _floats("fake_quantize", x)
    limit = _limit("fake_quantize", bits)
    axes = axes_of(axis, data.ndim)
    estimator = choice("fake_quantize: straight_through", straight_through, get_args(Estimator))
    how = choice("fake_quantize: mode", mode, get_args(Mode))
    share = number("fake_quantize: decay", decay)
    if not 0 <= share <= 1:
        raise ConfigError(f"fake_quantize: decay must be between 0 and 1, not {share}")
    updates = how == "average" and flag("fake_quantize: is_training", is_training)
    if state is None and how != "batch" and not updates:
        raise ConfigError(f"fake_quantize: mode {how!r} needs a state", hint="a call in mode 'batch' returns a scale")
    exact = rlx.stop_gradient(rlx.astype(data, wide))
    unchanged = None if state is None else operand(state)
    previous = None if unchanged is None else rlx.stop_gradient(rlx.astype(unchanged, wide))
    if previous is not None:
        along("fake_quantize: state", previous, data, axes)  # refused in all modes, also where it is not read
    if how == "batch" or updates:
        scale = _measured(exact, axes, limit)
        if updates and previous is not None:
            scale = rlx.where(previous <= 0, scale, share * previous + (1 - share) * scale)
        following = scale if updates else unchanged
    else:
        assert previous is not None, "checked above"
        scale, following = rlx.clip(previous, SMALLEST, None), unchanged
    steps = along("fake_quantize: scale", scale, data, axes)
    y = rlx.astype(_rounded(exact / steps, limit) * steps, dtype_of(data.dtype))
    factor = _factor(estimator, rlx.astype(data, wide), steps, limit)
    return rlx.straight_through(y, data) if factor is None else rlx.straight_through(y, data, factor), scale, following


@checked_call
def learned_scale_quantize(
    x: ArrayLike, scale: ArrayLike, *, bits: int = 8, axis: Axes = None, grad_scale: bool = True
) -> Array:
    """x rounded to the nearest code of a symmetric range and back, with a scale that is learned: `round(clip(z, -q, q)) · s`.

    `s = max(scale, 1e-12)`, `z = x/s` and `q = 2^(bits-1) - 1`. The derivative with respect to x is 1 where `|z| ≤ q` and 0
    elsewhere. That with respect to the scale is `g·(round(z) - z)` where `|z| ≤ q` and `g·sign(z)·q` elsewhere, with
    `g = 1/√(N·q)` for N elements that share a scale; it is 0 where the scale is below 1e-12.

    Args:
        x: `f[..]`.
        scale: `f[]`, or `f[n]` along `axis`. `2·mean(|x|)/√q` is a usual start.
        bits: The width of a code, 2 to 16.
        axis: The axis along which scales differ, or several. By default there is one scale.
        grad_scale: Whether the factor g is part of the derivative; otherwise g is 1.

    Returns:
        y like x.

    Raises:
        DtypeError: x is no array of floats.
        ShapeError: The scale has another shape.
        ConfigError: The width is out of range.

    >>> rlx.quantization.learned_scale_quantize(np.float32([0.3, -0.8, 9]), np.float32(0.5), bits=3).tolist()
    [0.5, -1.0, 1.5]

    Source:
        Esser et al. 2020, "Learned step size quantization", arXiv:1902.08153, equations 1 to 3 and section 2.2.
    """
    data, wide = _floats("learned_scale_quantize", x)
    limit = _limit("learned_scale_quantize", bits)
    scales = along("learned_scale_quantize: scale", scale, data, axes := axes_of(axis, data.ndim))
    learned, exact = rlx.clip(rlx.astype(scales, wide), SMALLEST, None), rlx.astype(data, wide)
    steps = rlx.stop_gradient(learned)
    z = rlx.stop_gradient(exact) / steps
    codes = _rounded(z, limit)
    is_inside = _is_inside(z, limit)
    shared = product([n for i, n in enumerate(data.shape) if i not in axes])
    gain = 1 / rlx.sqrt(rlx.astype(rlx.asarray(shared * limit), wide)) if flag("grad_scale", grad_scale) else 1
    # The derivatives of this sum are the stated ones, in both modes; outside of the range, the code is sign(z)·q.
    surrogate = is_inside * exact + gain * (codes - is_inside * z) * learned
    result = dtype_of(data.dtype)
    return rlx.straight_through(rlx.astype(codes * steps, result), rlx.astype(surrogate, result))


def _floats(what: str, x: Any) -> tuple[Any, DType]:
    """Return x and the dtype in which its scale is computed."""
    data = operand(x)
    if not dtype_of(data.dtype).is_float:
        raise DtypeError(f"{what}: x must have floats, not {dtype_of(data.dtype)}")
    return data, wide_of(dtype_of(data.dtype))


def _limit(what: str, bits: Any) -> int:
    """Return the largest code of a symmetric range."""
    width = whole(f"{what}: bits", bits)
    if not 2 <= width <= 16:
        raise ConfigError(f"{what}: bits must be between 2 and 16, not {width}")
    return 2 ** (width - 1) - 1


def _measured(x: Any, axes: tuple[int, ...], limit: int) -> Any:
    """Return the scale by which the element of largest magnitude has the largest code: one for each index of the axes."""
    others = tuple(axis for axis in range(x.ndim) if axis not in axes)
    if any(x.shape[axis] == 0 for axis in others):  # no elements have no maximum
        return rlx.full(tuple(x.shape[axis] for axis in axes), SMALLEST, dtype=dtype_of(x.dtype))
    largest = rlx.max(rlx.abs(x), axis=others) if others else rlx.abs(x)
    return rlx.clip(largest / limit, SMALLEST, None)


def _rounded(z: Any, limit: int) -> Any:
    return rlx.round(rlx.clip(z, -limit, limit))


def _is_inside(z: Any, limit: Any) -> Any:
    """Return 1 where |z| is at most the limit and 0 elsewhere; NaN where z is NaN."""
    return rlx.where(z == z, rlx.astype(rlx.abs(z) <= limit, dtype_of(z.dtype)), z)


def _factor(estimator: str, x: Any, steps: Any, limit: int) -> Any:
    """Return the derivative that an estimator declares; `None` for 1."""
    if estimator == "identity":
        return None
    if estimator == "clipped":
        return _is_inside(x, limit * steps)
    if estimator == "tanh":
        bent = rlx.tanh(x / steps)
        return 1 - bent * bent
    return rlx.relu(1 - rlx.abs(x / (limit * steps)))
