"""The laws of rules on every sample of the element-wise families. The rules are called by hand, see `conftest.py`."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from rlx_core.errors import RlxError
from rlx_core.ir.graph import Builder, Value, as_results, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import ZERO, Zero
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops.families import Family
from rlx_core.ops.samples import Case, Rejected, Sample, draw
from rlx_core.ops.selection import StraightThrough

FAMILIES = "arithmetic floating activation piecewise trigonometry gamma comparison bitwise complex selection"
OPS = tuple(op for module in FAMILIES.split() for op in Family(module))
CASES = [Case(op, s) for op in OPS for s in op.samples()]
ACCEPTED = [c for c in CASES if isinstance(c.sample, Sample)]
REJECTED = [c for c in CASES if isinstance(c.sample, Rejected)]
SMOOTH = [
    c
    for c in ACCEPTED
    if c.sample.is_smooth
    and not c.op.is_barrier
    and any(t is not None and t.dtype.is_differentiable for t in c.sample.types)
]  # barriers have several results: see test_selection.py
# One dtype of a kind is enough here: batching moves axes, and does not look at elements.
BATCHED = [c for c in ACCEPTED if c.op.batch and c.sample.types[-1].dtype.name in ("bool", "f32", "i32", "c64")]
EXTRA = 3  # the size of the batch axis: unlike the leading dims of most samples


def applied(case: Case) -> Any:
    """The op of a case as a function of all its operands that are present."""
    op = case.op(**case.sample.attributes)

    def function(*x: Value) -> Any:
        given = iter(x)
        return op(*[None if t is None else next(given) for t in case.sample.types])

    return function


def arrays(case: Case) -> list[np.ndarray]:
    return [a for a in case.sample.arrays(case.op) if a is not None]


def types(case: Case) -> list[TensorType]:
    return [t for t in case.sample.types if t is not None]


def wide(array: np.ndarray) -> np.ndarray:
    """A float array in f64 and a complex one in c128, so that differences see the derivative and not the rounding."""
    if np.iscomplexobj(array):
        return array.astype(np.complex128)
    return array if array.dtype.kind in "iub" else array.astype(np.float64)


def random_like(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    drawn = rng.uniform(-1, 1, array.shape)
    return np.asarray(drawn + 1j * rng.uniform(-1, 1, array.shape) if np.iscomplexobj(array) else drawn)


def pairing(u: np.ndarray, v: np.ndarray) -> float:
    """SPEC 3.0 contract 8: 2·Re Σ conj(u)·v on complex tensors, Σ u·v on real ones."""
    both = np.sum(np.conj(u) * v)
    return float(2 * both.real if np.iscomplexobj(u) else both)


def is_differentiable(array: np.ndarray) -> bool:
    return array.dtype.kind not in "iub"


@pytest.mark.parametrize("case", ACCEPTED, ids=repr)
def test_the_inferred_type_is_the_type_computed(case: Case) -> None:
    builder = Builder()
    x = [builder.input(f"x{i}", t) for i, t in enumerate(types(case))]
    with building(builder):
        results = as_results(applied(case)(*x))
    found = interpret(builder.finish(results), {f"x{i}": a for i, a in enumerate(arrays(case))})

    for value, array in zip(results, found, strict=True):
        assert (value.dtype.numpy, value.shape) == (array.dtype, array.shape)


@pytest.mark.parametrize("case", REJECTED, ids=repr)
def test_a_rejection_says_what_it_promised(case: Case) -> None:
    builder = Builder()
    x = [builder.input(f"x{i}", t) for i, t in enumerate(types(case))]

    with pytest.raises(RlxError) as caught:
        applied(case)(*x)

    assert isinstance(caught.value, case.sample.error)
    assert case.sample.says in str(caught.value)


@pytest.mark.parametrize("case", SMOOTH, ids=repr)
def test_derivatives_agree_with_differences_and_with_each_other(case: Case, calculus: Any) -> None:
    """One tangent t and one cotangent g: J·t is the central difference, and <g, J·t> = <Jᵀ·g, t>."""
    function, x = applied(case), [wide(a) for a in arrays(case)]
    rng = np.random.default_rng(zlib.crc32(repr(case).encode()))
    moving = [i for i, a in enumerate(x) if is_differentiable(a)]
    y = calculus.evaluate(function, *x, mode="wide")
    t = [random_like(rng, a) if i in moving else np.zeros(a.shape) for i, a in enumerate(x)]
    g = random_like(rng, y)

    def forward(*operands: Value) -> Any:
        primals, tangents = operands[: len(x)], operands[len(x) :]
        return calculus.jvp(function)([v if i in moving else ZERO for i, v in enumerate(tangents)], *primals)

    found = calculus.evaluate(forward, *x, *t, mode="wide")
    step = 1e-6
    ahead, behind = (
        calculus.evaluate(
            function, *[a + s * v if i in moving else a for i, (a, v) in enumerate(zip(x, t, strict=True))]
        )
        for s in (step, -step)
    )
    # Central differences in f64: truncation step² · f''' and rounding 1e-16/step, both about 1e-10, times slopes of up to 100.
    np.testing.assert_allclose(found, (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-7)

    cotangents = as_results(calculus.evaluate(calculus.vjp(function), g, *x, mode="wide"))
    left, right = pairing(g, found), sum(pairing(cotangents[i], t[i]) for i in moving)
    assert left == pytest.approx(right, rel=1e-10, abs=1e-10)  # the same products in another order, in f64


@pytest.mark.parametrize("case", [c for c in SMOOTH if c.op.decompose and c.op.vjp], ids=repr)
def test_a_written_rule_agrees_with_the_derived_one(case: Case, calculus: Any) -> None:
    function, x = applied(case), [wide(a) for a in arrays(case)]
    g = random_like(np.random.default_rng(0), calculus.evaluate(function, *x, mode="wide"))

    own = as_results(calculus.evaluate(calculus.vjp(function), g, *x, mode="wide"))
    derived = as_results(calculus.evaluate(calculus.vjp(function, derive=[case.op.name]), g, *x, mode="wide"))

    for a, b in zip(own, derived, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)  # f64: a dozen roundings


@pytest.mark.parametrize(
    "case",
    [c for c in SMOOTH if types(c)[-1].dtype.name in ("f16", "c64") and len({t.dtype for t in types(c)}) == 1],
    ids=repr,
)
def test_rules_compute_in_the_dtype_of_their_operands(case: Case, calculus: Any) -> None:
    """A constant of another dtype would widen everything after it; the last cast would hide that from the types."""
    made: list[Value] = []

    def differentiated(*x: Value) -> Any:
        y = applied(case)(*x)
        found = calculus.vjp(applied(case))(y, *x), calculus.jvp(applied(case))(list(x), *x)
        made.extend(r for node in y.node.owner.nodes for r in node.results)
        return found[0]

    calculus.evaluate(differentiated, *arrays(case))
    own = types(case)[0].dtype

    assert {v.dtype.name for v in made} <= {own.name, own.component.name, "bool"}


@pytest.mark.parametrize("op", [op for op in OPS if op.is_commutative], ids=lambda op: op.name)
def test_a_commutative_op_gives_the_same_bits_either_way(op: Any, calculus: Any) -> None:
    """Of real values: NumPy fuses one multiplication of a complex product with the addition, so its last bit may differ."""
    for sample in op.samples():
        if isinstance(sample, Sample) and not sample.types[0].dtype.is_complex:
            a, b = sample.arrays(op)
            np.testing.assert_array_equal(calculus.evaluate(op(), a, b), calculus.evaluate(op(), b, a))


@pytest.mark.parametrize("case", BATCHED, ids=repr)
def test_a_batched_op_is_the_op_on_each_example(case: Case, calculus: Any) -> None:
    """Every choice of batched operands, of which one at least is."""
    function, x = applied(case), arrays(case)
    rng = np.random.default_rng(zlib.crc32(repr(case).encode()))
    for choice in range(1, 2 ** len(x)):
        is_batched = [bool(choice >> i & 1) for i in range(len(x))]
        given = [
            np.stack([redrawn(case, i, rng) for _ in range(EXTRA)]) if b else a
            for i, (a, b) in enumerate(zip(x, is_batched, strict=True))
        ]

        def batched(*operands: Value, is_batched: list[bool] = is_batched) -> Any:
            builder = Builder("example")
            own = [builder.input(f"x{i}", t) for i, t in enumerate(types(case))]
            with building(builder):
                node = as_results(function(*own))[0].node
            casts = {v: to.node.op for v, to in zip(own, node.present(), strict=True) if to is not v}
            primals = [casts[v](o) if v in casts else o for v, o in zip(own, operands, strict=True)]
            flags, moved = iter(is_batched), iter(primals)
            rows = [(None, False) if t is None else (next(moved), next(flags)) for t in case.sample.types]
            return node.op.batch(EXTRA, [v for v, _ in rows], [b for _, b in rows])

        found = as_results(calculus.evaluate(batched, *given))
        for k in range(EXTRA):
            example = [a[k] if b else a for a, b in zip(given, is_batched, strict=True)]
            for whole, single in zip(found, as_results(calculus.evaluate(function, *example)), strict=True):
                np.testing.assert_array_equal(whole[k], single)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_rules_hold_on_dims_that_are_not_known_yet(op: Any) -> None:
    """Operands of `[n, 4]`, `[4]` and `[]`, or all of `[n, 4]` where dims must agree: cotangents and batches keep `n`."""
    sample = next(s for s in op.samples() if isinstance(s, Sample))
    dims = ("[n, 4]", "[n, 4]", "[4]") if op is StraightThrough else ("[n, 4]", "[4]", "[]")
    builder = Builder()
    present = [t for t in sample.types if t is not None]
    x = [builder.input(f"x{i}", spec(f"{t.dtype}{d}")) for i, (t, d) in enumerate(zip(present, dims, strict=False))]
    results = as_results(op(**sample.attributes)(*x))
    node = results[0].node

    if op.vjp is not None and results[0].dtype.is_differentiable:
        g = tuple(builder.input(f"g{i}", r.type) for i, r in enumerate(results))
        y = results if len(results) > 1 else results[0]
        cotangents = as_results(node.op.vjp(g if len(g) > 1 else g[0], *node.operands, y=y))
        for operand, cotangent in zip(node.operands, cotangents, strict=False):  # absent operands have a place, too
            assert isinstance(cotangent, Zero) or cotangent.type == operand.type
    stacked = [builder.input(f"b{i}", v.type.with_shape((EXTRA, *v.shape))) for i, v in enumerate(node.present())]
    if op.batch is not None:
        batched = as_results(node.op.batch(EXTRA, stacked, [True] * len(stacked)))
        assert [b.shape for b in batched] == [(EXTRA, *r.shape) for r in results]


def redrawn(case: Case, index: int, rng: np.random.Generator) -> np.ndarray:
    names = [o.name for o, t in zip(case.op.operands, case.sample.types, strict=False) if t is not None]
    name = names[index] if index < len(names) else ""
    return draw(rng, types(case)[index], *case.sample.ranges.get(name, (case.sample.low, case.sample.high)))
