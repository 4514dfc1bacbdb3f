"""Tolerance of a result against its float64 value: derived from the error of the same program in NumPy, not a constant.

`|found - f64| ≤ k · yardstick + ulps · ulp(f64)`, where the yardstick of an output is the larger of two errors of the program
itself: of its typed evaluation with NumPy, and of float64 evaluations in which every result of a node is off by a rounding of
its dtype. The second one is there because a single evaluation may be exact by luck, which nothing else has to repeat. Both are
taken over a whole output: elements of one output are sums of like terms, and one of them may always come out exact.
Integers and booleans are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlx_core.ir.dtypes import DType, dtype, f64
from rlx_core.ir.graph import Graph, Value
from rlx_core.ir.interpret import interpret
from rlx_core.system.records import frozen

K = 8
"""Multiple of NumPy's own error: other orders of summation, fused products, functions of 2 ulp where NumPy has 0.5."""
ULPS = 8
NOISES = 3


def precision(kind: DType) -> float:
    """The distance from 1 to the next larger number of a float dtype."""
    bits = {"f16": 10, "bf16": 7, "f32": 23, "c64": 23}.get(kind.name, 52)
    return float(2.0**-bits)


@frozen(eq=False)
class Yardstick:
    """The true outputs of a program on some arrays, and their tolerances."""

    outputs: tuple[Value, ...]
    exact: tuple[np.ndarray, ...]
    allowed: tuple[np.ndarray | None, ...]

    def complaint(self, actual: Sequence[np.ndarray]) -> str | None:
        """Return the failure of the outputs of a run, in one line; `None` if they are within the tolerance."""
        if len(actual) != len(self.exact):
            return f"{len(actual)} outputs instead of {len(self.exact)}"
        for i, (got, value, exact, allowed) in enumerate(
            zip(actual, self.outputs, self.exact, self.allowed, strict=True)
        ):
            if dtype(got.dtype) is not value.dtype or got.shape != value.type.static_shape:
                return f"output {i} is {dtype(got.dtype)}{list(got.shape)}, declared is {value.type}"
            if allowed is None:
                wrong = np.atleast_1d(got != exact)
                if wrong.any():
                    first = tuple(int(n) for n in np.argwhere(wrong)[0])[: got.ndim]
                    return f"output {i} ({value.type}) at {first} is {got[first]}, not {exact[first]}"
                continue
            wide = got.astype(exact.dtype)
            with np.errstate(invalid="ignore"):
                is_near = (np.abs(wide - exact) <= allowed) | (wide == exact) | (np.isnan(wide) & np.isnan(exact))
            if not is_near.all():
                over = np.where(is_near, 0, np.nan_to_num(np.abs(wide - exact) / allowed, nan=np.inf, posinf=np.inf))
                index = tuple(int(n) for n in np.unravel_index(int(np.argmax(over)), over.shape))
                count = int((~is_near).sum())
                return (
                    f"output {i} ({value.type}) at {index} is {wide[index]!r}, not {exact[index]!r}: "
                    f"off by {abs(wide[index] - exact[index]):.3g}, allowed is {allowed[index]:.3g}; {count} of {is_near.size}"
                )
        return None


def yardstick(graph: Graph, fed: Mapping[str, np.ndarray], *, k: float = K, ulps: float = ULPS) -> Yardstick:
    """Return the expected outputs of `graph` on these arrays, with their tolerances.

    Args:
        graph: The program, as written: without any pass.
        fed: Arrays for inputs and params by name.
        k: Multiple of the program's own error.
        ulps: Further units in the last place of each element.
    """
    exact = interpret(graph, fed, mode="wide")
    typed = interpret(graph, fed)
    rng = np.random.default_rng(0)
    noisy = [interpret(graph, fed, mode="wide", rounded=Noise(rng)) for _ in range(NOISES)]
    allowed: list[np.ndarray | None] = []
    for i, (value, true) in enumerate(zip(graph.outputs, exact, strict=True)):
        if not value.dtype.is_differentiable:
            allowed.append(None)
            continue
        with np.errstate(invalid="ignore"):  # infinities that agree differ by NaN, and are not counted
            errors = [largest(run[i].astype(true.dtype) - true) for run in (typed, *noisy)]
        component = value.dtype.component
        unit = np.maximum(np.abs(true), smallest(component)) * precision(component)
        allowed.append(k * max(errors) + ulps * unit)
    return Yardstick(graph.outputs, exact, tuple(allowed))


class Noise:
    """Perturbs the results of a node by up to so many roundings of its dtype; the interpreter calls it for every result."""

    def __init__(self, rng: np.random.Generator, times: float = 1.0) -> None:
        self._rng, self._times = rng, times

    def __call__(self, value: Value, array: np.ndarray) -> np.ndarray:
        kind = value.dtype
        # The oracle of an f64 program is itself f64: errors inside an op show where its operands are perturbed a little.
        is_exact = value.node.is_leaf and kind.component is not f64
        if not kind.is_differentiable or is_exact or value.node.op.category == "movement":
            return array
        factor = 1 + self._times * precision(kind.component) * self._rng.uniform(-1, 1, array.shape)
        with np.errstate(invalid="ignore"):  # of an infinity
            return np.asarray(array * factor)


def largest(differences: np.ndarray) -> float:
    """The largest finite size of a difference."""
    sizes = np.abs(differences)
    finite = sizes[np.isfinite(sizes)]
    return float(finite.max()) if finite.size else 0.0


def smallest(kind: DType) -> float:
    """The smallest normal number of a float dtype."""
    return {"f16": 2.0**-14, "f64": 2.0**-1022}.get(kind.name, 2.0**-126)
