"""What is asked of a function, answered by rlx; and when an answer agrees with the one in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import optree

import rlx_core as rlx

from .arguments import is_inexact, taken_apart
from .rows import Case

__all__ = ["Answers", "disagreement", "eps_of", "ours"]

Answers = Mapping[str, list[np.ndarray]]
"""Question → the arrays that answer it."""


def ours(
    function: Callable[..., Any],
    case: Case,
    tangents: Sequence[np.ndarray],
    cotangents: Sequence[np.ndarray],
    asks: frozenset[str],
) -> Answers:
    """What is asked of a function of ours, as users ask it, compiled."""
    arguments = taken_apart(case.args)
    by = tuple(range(len(arguments.smooth)))

    def results(*args: Any) -> list[Any]:
        return list(optree.tree_leaves(function(*args)))

    def smooth_results(*args: Any) -> list[Any]:
        return [r for r in results(*args) if not rlx.isdtype(r.dtype, ("bool", "integral"))]

    def gradients(points: Sequence[Any], leaves: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        loss = lambda *values: _weighted(smooth_results(*arguments.at(values, leaves)), weights)  # noqa: E731
        return list(rlx.grad(loss, by)(*points))

    def along(points: Sequence[Any], leaves: Sequence[Any], directions: Sequence[Any]) -> list[Any]:
        at = lambda *values: smooth_results(*arguments.at(values, leaves))  # noqa: E731
        return list(rlx.jvp(at, tuple(points), tuple(directions))[1])

    def second(points: Sequence[Any], leaves: Sequence[Any], weights: Any, directions: Any) -> list[Any]:
        total = lambda *values: _weighted(gradients(values, leaves, weights), directions)  # noqa: E731
        return list(rlx.grad(total, by)(*points))

    points, leaves, weights = arguments.points, arguments.leaves, list(cotangents)
    found: dict[str, Any] = {"forward": rlx.jit(results)(*case.args)}
    if "gradient" in asks:
        found["gradient"] = rlx.jit(gradients)(points, leaves, weights)
    if "jvp" in asks:
        found["jvp"] = rlx.jit(along)(points, leaves, list(tangents))
    if "second" in asks:
        found["second"] = rlx.jit(second)(points, leaves, weights, list(tangents))
    if "batch" in asks:
        stacked = [
            each[0] if axis is None else optree.tree_map(lambda *x, axis=axis: np.stack(x, axis), *each)
            for axis, each in zip(case.in_axes, zip(*case.examples, strict=True), strict=True)
        ]
        found["batch"] = rlx.vmap(results, in_axes=case.in_axes)(*stacked)
    return {question: [np.asarray(x) for x in values] for question, values in found.items()}


def _weighted(results: Sequence[Any], weights: Sequence[Any]) -> Any:
    """The sum of all elements times their weights; both parts of a complex one count."""
    terms = []
    for result, weight in zip(results, weights, strict=True):
        if rlx.isdtype(result.dtype, "complex floating"):
            terms += [rlx.sum(rlx.real(result) * rlx.real(weight)), rlx.sum(rlx.imag(result) * rlx.imag(weight))]
        else:
            terms.append(rlx.sum(result * weight))
    return sum(terms[1:], terms[0])


def disagreement(found: Sequence[np.ndarray], exact: Sequence[np.ndarray], dtype: str, share: float) -> str | None:
    """How results differ from the exact ones by more than a share of the largest element; `None` if they do not."""
    if len(found) != len(exact):
        return f"{len(found)} results, not {len(exact)}"
    for i, (have, want) in enumerate(zip(found, exact, strict=True)):
        if have.shape != want.shape:
            return f"result {i} is {list(have.shape)}, not {list(want.shape)}"
        if not is_inexact(want.dtype):
            if not np.array_equal(have, want):
                return f"result {i}: {have.tolist()}, not {want.tolist()}"
            continue
        wide = have.astype(np.complex128 if want.dtype.kind == "c" else np.float64)
        finite = np.isfinite(want)
        if not np.array_equal(wide[~finite], want[~finite], equal_nan=True):
            return f"result {i}: other infinities or NaN"
        scale = float(np.max(np.abs(want[finite]), initial=0.0))
        allowed = share * max(scale, 1e-3)
        error = float(np.max(np.abs(wide[finite] - want[finite]), initial=0.0))
        if not error <= allowed:
            return f"result {i}: {error:.2e} from a largest element of {scale:.2e}, where {dtype} allows {allowed:.2e}"
    return None


def eps_of(dtype: str) -> float:
    """The distance from 1 to the next number of the dtype."""
    parts: Mapping[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "c64": np.float32}
    return float(ml_dtypes.finfo(parts.get(dtype, np.float64)).eps)
