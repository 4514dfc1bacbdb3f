"""Whether a program computes the same before and after a rewrite, on ordinary and on special inputs.

A rewrite that states no floating-point law keeps NaN, infinities and the sign of zero, and is off by rounding at most; one that
has to be exact keeps every bit. A rewrite that states the law it violates is compared within that statement: `LAWS` lists the
words that are understood. Rounding is allowed of every rewrite that states a law.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from rlx_core.ir.graph import Graph
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import TensorType
from rlx_core.passes.engine.rule_checks import same_bits, specials
from rlx_core.system.records import frozen
from rlx_core.testing.yardstick import yardstick

LAWS: Final = {
    "non-finite": ("nan", "inf", "overflow", "underflow"),
    "sign of zero": ("signed zero", "sign of zero", "underflow"),
}
"""The differences that a stated law excuses, and the words that state it."""

RANGES: Final = {"ordinary": (-2.0, 2.0), "positive": (0.5, 2.0), "tails": (-40.0, 40.0)}
"""The ranges of random floats; integers have the same ranges, and their limits."""


@frozen(eq=False)
class Inputs:
    """Arrays for every input and parameter of a program, and the name of their kind."""

    name: str
    arrays: Mapping[str, np.ndarray]


def inputs_of(graph: Graph, own_inputs: Mapping[str, np.ndarray] | None = None) -> Iterator[Inputs]:
    """Inputs of each kind for a program of static types: its own, three ranges, then two draws of special values.

    Args:
        own_inputs: Inputs that the program is known to take. Integers among them may be indices, so they are kept in every kind.
    """
    types = {**graph.input_types, **graph.param_types}
    rng = np.random.default_rng(0)
    fixed = {n: a for n, a in (own_inputs or {}).items() if a.dtype.kind in "biu"}
    if own_inputs is not None:
        yield Inputs("its own inputs", own_inputs)
    for name, (low, high) in RANGES.items():
        yield Inputs(f"{name} inputs", {n: drawn(rng, t, low, high) for n, t in types.items()} | fixed)
    for number in range(2):
        yield Inputs(f"special inputs {number + 1}", {n: special(rng, t) for n, t in types.items()} | fixed)


def drawn(rng: np.random.Generator, type: TensorType, low: float, high: float) -> np.ndarray:
    """Values of a type in a range."""
    shape, dtype = type.static_shape, type.dtype
    if dtype.name == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        least = 0 if dtype.kind == "uint" else int(low)
        return rng.integers(least, int(high), shape, endpoint=True).astype(dtype.numpy)
    real = rng.uniform(low, high, shape)
    return np.asarray(real + 1j * rng.uniform(low, high, shape) if dtype.is_complex else real).astype(dtype.numpy)


def special(rng: np.random.Generator, type: TensorType) -> np.ndarray:
    """NaN, infinities, both zeros, the smallest subnormal number, and the limits of integers."""
    shape, dtype = type.static_shape, type.dtype
    if dtype.name == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    count = int(np.prod(shape))
    if not dtype.is_complex:
        return specials(rng, dtype, count).reshape(shape)
    parts = [specials(rng, dtype.component, count).reshape(shape) for _ in range(2)]
    result = np.empty(shape, dtype.numpy)
    result.real, result.imag = parts
    return result


def difference(
    before: Graph, after: Graph, fed: Inputs, *, law: str | None = None, is_exact: bool = False
) -> str | None:
    """Return a description of the difference of two programs on some inputs; `None` if they do not.

    Args:
        law: The floating-point law that the rewrite states it violates.
        is_exact: Whether every bit has to be kept.
    """
    is_special = any(not np.isfinite(a).all() for a in fed.arrays.values() if a.dtype.kind == "c")
    if is_special and not is_exact:
        return None  # systems do not agree on the infinities and NaNs of complex numbers (C11, annex G.5)
    left, right = interpret(before, fed.arrays), interpret(after, fed.arrays)
    if len(left) != len(right):
        return f"{len(right)} results, not {len(left)}"
    judged = yardstick(before, fed.arrays)
    for i, (a, b, exact, allowed) in enumerate(zip(left, right, judged.exact, judged.allowed, strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {i} is {b.dtype}{list(b.shape)}, not {a.dtype}{list(a.shape)}"
        if same_bits(a, b):
            continue
        if a.dtype.kind in "biu" and fed.name.startswith("special") and states(law, "non-finite"):
            continue  # a predicate of a value that may differ where it is not finite, such as `is_finite(exp(x))`
        is_equal = np.zeros(a.shape, np.bool_)
        if not is_exact and allowed is not None:
            is_equal = near(a, b, exact, allowed) & (zeros_agree(a, b) | states(law, "sign of zero"))
        if law is not None and a.dtype.kind not in "biu" and states(law, "non-finite"):
            with np.errstate(all="ignore"):
                is_equal = is_equal | ~np.isfinite(a) | ~np.isfinite(b)
        elif is_exact or a.dtype.kind in "biu":
            is_equal = elements_equal(a, b)
        if not is_equal.all():
            index = tuple(int(n) for n in np.argwhere(~np.atleast_1d(is_equal))[0])[: a.ndim]
            stated = f", which the stated law ({law}) does not cover" if law is not None else ""
            return (
                f"on {fed.name}, result {i} at {list(index)} is {b[index]!r} after it and {a[index]!r} before{stated};"
                f" {int((~is_equal).sum())} of {is_equal.size} elements differ"
            )
    return None


def states(law: str | None, kind: str) -> bool:
    """Return whether a stated law covers a kind of difference."""
    return law is not None and any(word in law.lower() for word in LAWS[kind])


def near(a: np.ndarray, b: np.ndarray, exact: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Return a mask of the elements of `b` that equal the program's own result, or its exact result, up to its own rounding."""
    with np.errstate(all="ignore"):
        x, y = a.astype(exact.dtype), b.astype(exact.dtype)
        same = (x == y) | (np.isnan(x) & np.isnan(y)) | (y == exact)
        return np.asarray(same | (np.abs(y - exact) <= allowed) | (np.abs(y - x) <= allowed))


def zeros_agree(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a mask of the elements that are not zeros of opposite signs."""
    if a.dtype.kind == "c":
        return zeros_agree(a.real, b.real) & zeros_agree(a.imag, b.imag)
    x, y = a.astype(np.float64), b.astype(np.float64)
    return np.asarray((x != 0) | (y != 0) | (np.signbit(x) == np.signbit(y)))


def elements_equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a mask of the elements with equal bits; any NaN equals another."""
    if a.dtype.kind == "c":
        return elements_equal(a.real, b.real) & elements_equal(a.imag, b.imag)
    if a.dtype.kind in "biu":
        return np.asarray(a == b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    return np.asarray((np.isnan(x) & np.isnan(y)) | ((x == y) & (np.signbit(x) == np.signbit(y))))
