"""Checking a rule against the reference interpreter: both sides evaluated, on the values where rules go wrong.

An exact rule must keep every bit (NaN for NaN) on infinities, signed zeros, subnormals and integer extremes, for every dtype that
its left side takes. A rule that gives something up is compared on ordinary values only, to a tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlx_core.errors import Fact, RlxError, VerifyError
from rlx_core.ir.dtypes import ALL, DType
from rlx_core.ir.graph import Builder, Graph, Input, Value, as_results, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import TensorType, spec
from rlx_core.passes.engine.apply_rules import apply_rules
from rlx_core.passes.engine.rules import RewriteRule, RuleSet, instantiate
from rlx_core.system.records import frozen

__all__ = ["Checked", "check_rule"]


@frozen
class Checked:
    """The samples on which a rule fired and was correct."""

    rule: str
    fired: tuple[str, ...]


def check_rule(rule: RewriteRule) -> Checked:
    """Evaluate both sides of a rule on its samples.

    A sample names a type for every operand variable (`x="f32[3, 4]"`) and a value for every attribute variable; `make=` is a
    function of the operand variables that builds the left side, for rules whose left side is a whole op. Without samples a rule
    is tried with all variables of one type `[3, 4]`, once for each dtype.

    Raises:
        VerifyError: The sides differ, a sample of the rule's own does not fire, or the rule never fires.
    """
    fired: list[str] = []
    for sample in rule.samples or default_samples(rule):
        graph = left_graph(rule, sample, is_own=bool(rule.samples))
        if graph is None:
            continue
        result = apply_rules(graph, RuleSet("check", lambda: [rule]), rounds=1)
        if rule.key in result.counts:
            compare(rule, graph, result.graph, sample)
            fired.append(shown(sample))
        elif rule.samples:
            reason = "; ".join(m.reason for m in result.misses) or "the pattern does not match"
            raise VerifyError(f"rule {rule.key}: it does not fire on its own sample", Fact(shown(sample), reason))
    if not fired:
        raise VerifyError(f"rule {rule.key}: it fires on no sample", hint="give it one with `.sampled(...)`")
    return Checked(rule.key, tuple(fired))


def shown(sample: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in sample.items() if not callable(v))


def default_samples(rule: RewriteRule) -> Iterator[dict[str, Any]]:
    names = sorted(variables_of(rule.left)) if isinstance(rule.left, Value) else []
    for dtype in ALL:
        yield dict.fromkeys(names, TensorType(dtype, (3, 4)))


def variables_of(pattern: Value) -> set[str]:
    """The operand variables of a pattern."""
    if isinstance(pattern.node.op, Input):
        return {pattern.node.op.label}
    return set().union(*(variables_of(v) for v in pattern.node.present()))


def left_graph(rule: RewriteRule, sample: Mapping[str, Any], is_own: bool) -> Graph | None:
    """Return the left side on a sample as a program; `None` if it is invalid for these types."""
    builder = Builder("left")
    arguments: dict[str, Any] = {
        name: builder.input(name, spec(each)) if isinstance(each, TensorType) or is_type(each) else each
        for name, each in sample.items()
    }
    make = arguments.pop("make", None)
    try:
        with building(builder):
            if make is not None:
                results = as_results(make(**arguments))
            elif isinstance(rule.left, Value):
                results = as_results(instantiate(rule.left, arguments))
            else:
                return None
    except RlxError:
        if is_own:
            raise
        return None
    return builder.finish(results)


def is_type(each: object) -> bool:
    return isinstance(each, str) and each.endswith("]")


def compare(rule: RewriteRule, before: Graph, after: Graph, sample: Mapping[str, Any]) -> None:
    """Require that two programs compute the same on values that distinguish rules."""
    rng = np.random.default_rng(0)
    fed = {n: values_for(rng, t, is_ordinary=rule.gives_up is not None) for n, t in before.input_types.items()}
    for left, right in zip(interpret(before, fed), interpret(after, fed), strict=True):
        if rule.gives_up is not None:
            is_same = np.allclose(
                np.asarray(left, np.complex128), np.asarray(right, np.complex128), rtol=2e-2, atol=1e-3
            )
        else:
            is_same = same_bits(left, right)
        if not is_same:
            raise VerifyError(
                f"rule {rule.key}: its sides differ",
                Fact("sample", shown(sample)),
                Fact("left", left.tolist()),
                Fact("right", right.tolist()),
            )


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    """Return whether two arrays have equal bytes; any NaN equals another."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.kind == "c":
        return same_bits(left.real, right.real) and same_bits(left.imag, right.imag)
    if left.dtype.kind in "biu":
        return left.tobytes() == right.tobytes()
    a, b = left.astype(np.float64), right.astype(np.float64)
    return bool(np.all((np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))))


def values_for(rng: np.random.Generator, type: TensorType, is_ordinary: bool) -> np.ndarray:
    """Values of a type: ordinary ones, or those where identities break."""
    shape, dtype = type.static_shape, type.dtype
    count = int(np.prod(shape))
    if dtype.name == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if is_ordinary:
        return np.asarray(rng.uniform(0.5, 2.0, shape)).astype(dtype.numpy)
    if dtype.is_complex:
        values = np.empty(shape, dtype.numpy)
        values.real, values.imag = (specials(rng, dtype.component, count).reshape(shape) for _ in range(2))
        return values
    return specials(rng, dtype, count).reshape(shape)


def specials(rng: np.random.Generator, dtype: DType, count: int) -> np.ndarray:
    """The values where identities break, in a mixed order, as often as it takes to fill `count` places."""
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        table = np.array([limits.min, limits.max, 0, 1, limits.max - 1], dtype.numpy)
    else:
        table = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, smallest(dtype)]).astype(dtype.numpy)
    return rng.permutation(np.resize(table, count))


def smallest(dtype: DType) -> float:
    """The smallest positive (subnormal) number."""
    exponents = {"f16": -24, "bf16": -133, "f32": -149, "f64": -1074}
    return float(np.ldexp(1.0, exponents[dtype.component.name]))
