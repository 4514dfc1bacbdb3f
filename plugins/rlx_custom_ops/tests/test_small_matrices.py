"""Factors and systems of small matrices as machine code: values and errors of eager calls, in programs, loops and branches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import frozen

pytest.importorskip("llvmlite")

import rlx_core as rlx
import rlx_custom_ops as linalg
from rlx_core.errors import RlxError
from rlx_cpu.native.sharing import everything_is_shared
from rlx_custom_ops.emitters import MAX_SIDES, MAX_SMALL
from rlx_custom_ops.errors import NotPositiveDefiniteError

DTYPES = pytest.mark.parametrize("dtype", ["f4", "f8"])
SIZES = (0, 1, 2, 3, 4, 7, 8, 16, 31, 32)

Arrays = tuple[np.ndarray, ...]


def general(n: int, k: int, leading: tuple[int, ...], dtype: str) -> Arrays:
    """Matrices with a heavy diagonal, and right sides."""
    rng = np.random.default_rng(100 * n + k)
    a = rng.uniform(-1, 1, (*leading, n, n)) / max(n, 1) + 2 * np.eye(n)
    return a.astype(dtype), rng.uniform(-1, 1, (*leading, n, k)).astype(dtype)


def positive(n: int, k: int, leading: tuple[int, ...], dtype: str) -> Arrays:
    """Matrices whose eigenvalues are between 1 and 3."""
    a, _ = general(n, k, leading, dtype)
    return (((a + np.swapaxes(a, -1, -2)) / 2).astype(dtype),)


def square(n: int, k: int, leading: tuple[int, ...], dtype: str) -> Arrays:
    return general(n, k, leading, dtype)[:1]


def without_diagonal(n: int, k: int, leading: tuple[int, ...], dtype: str) -> Arrays:
    """Matrices whose diagonal is not to be read, and right sides."""
    a, b = general(n, k, leading, dtype)
    a[..., range(n), range(n)] = np.nan
    return a, b


@frozen
class Case:
    """A function of matrices, the native kernel that is to compute it, and what its operands are drawn by."""

    function: Callable[..., Any]
    kernel: str
    draw: Callable[[int, int, tuple[int, ...], str], Arrays]


def triangular_cases() -> dict[str, Case]:
    cases = {}
    for lower in (True, False):
        for operation in ("none", "transpose", "adjoint"):
            for unit in (False, True):
                name = f"{'lower' if lower else 'upper'} {operation}{' unit' if unit else ''}"
                function = partial(linalg.triangular_solve, lower=lower, operation=operation, unit_diagonal=unit)
                cases[name] = Case(function, "native_substitution", without_diagonal if unit else general)
    return cases


CASES = {
    "cholesky": Case(linalg.cholesky, "native_cholesky_factor", positive),
    "upper cholesky": Case(partial(rlx.linalg.cholesky, upper=True), "native_cholesky_factor", positive),
    "solve": Case(linalg.solve, "native_system", general),
    "inverse": Case(linalg.inverse, "native_system", square),
    "qr": Case(linalg.qr, "native_reflections", square),
    **triangular_cases(),
}
EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
LOOPED = {name: CASES[name] for name in ("cholesky", "solve", "inverse", "qr", "lower none", "upper adjoint unit")}
LOOPED_CASES = pytest.mark.parametrize("case", LOOPED.values(), ids=LOOPED.keys())


def flat(results: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in (results if isinstance(results, tuple) else (results,))]


def close(found: Any, expected: Any, dtype: str, weight: float = 1) -> None:
    """Both are of backward stable algorithms, on matrices of conditions below 10."""
    for x, y in zip(flat(found), flat(expected), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(
            x, y, rtol=0, atol=100 * weight * np.finfo(dtype).eps * max(1, np.abs(y).max(initial=0))
        )


def kernels_of(report: Any) -> set[str]:
    return {kernel for _, kernel, _ in report.kernels}


def expect_native(report: Any) -> None:
    """Every step is machine code, and no loop is driven from Python."""
    for absent in ("is driven", "lapack", "reference"):
        assert absent not in str(report)


@pytest.mark.medium
@DTYPES
@EVERY_CASE
def test_every_size_is_what_the_eager_call_gives(case: Case, dtype: str) -> None:
    for n in SIZES:
        for leading in ((), (2, 3)):
            arrays = case.draw(n, 3, leading, dtype)
            jitted = rlx.jit(case.function, target="cpu")
            close(jitted(*arrays), case.function(*arrays), dtype)
            expect_native(jitted.report)
            assert f"linalg.{case.kernel}" in kernels_of(jitted.report)


@EVERY_CASE
def test_larger_and_complex_matrices_are_lapacks(case: Case) -> None:
    for arrays in (case.draw(MAX_SMALL + 1, 2, (), "f8"), case.draw(3, 2, (), "c16")):
        jitted = rlx.jit(case.function, target="cpu")
        close(jitted(*arrays), case.function(*arrays), "f8")
        used = kernels_of(jitted.report)
        assert any("lapack" in kernel for kernel in used)
        assert f"linalg.{case.kernel}" not in used


@pytest.mark.parametrize("name", ["solve", "lower none"])
@pytest.mark.parametrize(
    ("k", "kernel"), [(1, "native"), (MAX_SIDES, "native"), (MAX_SIDES + 1, "lapack"), (0, "lapack")]
)
def test_systems_of_few_right_sides_are_native(name: str, k: int, kernel: str) -> None:
    arrays = general(4, k, (), "f8")
    jitted = rlx.jit(CASES[name].function, target="cpu")
    close(jitted(*arrays), CASES[name].function(*arrays), "f8")
    assert any(kernel in each for each in kernels_of(jitted.report))


@DTYPES
@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (4, 3), (3, 4), (32, 7), (7, 32)])
def test_factors_of_matrices_that_are_not_square(shape: tuple[int, int], dtype: str) -> None:
    a = np.random.default_rng(0).standard_normal((2, *shape)).astype(dtype)
    for scale in (1, np.finfo(dtype).max / 16, np.finfo(dtype).tiny * 16):  # squares overflow, and are subnormal
        jitted = rlx.jit(linalg.qr, target="cpu")
        q, r = (np.asarray(x, "f8") for x in jitted((a * scale).astype(dtype)))
        expect_native(jitted.report)
        np.testing.assert_allclose(
            np.swapaxes(q, -1, -2) @ q,
            np.broadcast_to(np.eye(min(shape)), (2, *[min(shape)] * 2)),
            atol=50 * np.finfo(dtype).eps,
        )
        np.testing.assert_allclose(q @ (r / scale), a, atol=100 * np.finfo(dtype).eps)
        assert (np.tril(r, -1) == 0).all()
        assert (np.diagonal(r, axis1=-2, axis2=-1) >= 0).all()


# -------------------------------------------------------------------------------------- loops and transforms


def stepped(case: Case, arrays: Arrays, c: Any) -> Any:
    """The sum of the results where the matrices are moved a little."""
    a, *rest = arrays
    found = case.function(a + 0.01 * c, *rest)
    return sum(rlx.sum(x) for x in (found if isinstance(found, tuple) else (found,))) / 100


def scanned(case: Case, c: Any, *arrays: Any) -> Any:
    return rlx.scan(lambda c, _: (stepped(case, arrays, c), None), c, None, length=5)[0]


def repeated(case: Case, c: Any, *arrays: Any) -> Any:
    return rlx.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, stepped(case, arrays, s[1])), (0, c))[1]


def chosen(case: Case, c: Any, *arrays: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        return rlx.cond(c < 100, lambda c: stepped(case, arrays, c), lambda c: c + 1, c), None

    return rlx.scan(step, c, None, length=5)[0]


def nested(case: Case, c: Any, *arrays: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        return rlx.fori_loop(0, 1, lambda i, c: stepped(case, arrays, c), c), None

    return rlx.scan(step, c, None, length=5)[0]


LOOPS = {"scan": scanned, "while": repeated, "cond": chosen, "nested": nested}
EVERY_LOOP = pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())


@EVERY_LOOP
@LOOPED_CASES
def test_a_loop_is_native(case: Case, loop: Callable[..., Any]) -> None:
    for n in (1, 4, 16):
        arrays, c = case.draw(n, 2, (), "f8"), np.float64(0.5)
        jitted = rlx.jit(partial(loop, case), target="cpu")
        expected = c
        for _ in range(5):
            expected = stepped(case, arrays, expected)
        close(jitted(c, *arrays), expected, "f8")
        expect_native(jitted.report)


@pytest.mark.medium
@LOOPED_CASES
def test_a_batch_of_loops_is_native(case: Case) -> None:
    arrays, c = case.draw(4, 2, (3,), "f8"), np.array([0.1, 0.5, -0.2])
    jitted = rlx.jit(rlx.vmap(partial(scanned, case)), target="cpu")
    each = [scanned(case, c[i], *(x[i] for x in arrays)) for i in range(3)]
    close(jitted(c, *arrays), np.stack([np.asarray(x) for x in each]), "f8")
    expect_native(jitted.report)


@LOOPED_CASES
def test_a_gradient_of_a_loop_is_native(case: Case) -> None:
    arrays, c = case.draw(4, 2, (), "f8"), np.float64(0.5)
    if case.draw is without_diagonal:
        arrays = general(4, 2, (), "f8")  # what is not read has a gradient of 0, and a NaN has none
    gradient = rlx.grad(lambda c, *x: scanned(case, c, *x), argnums=tuple(range(1 + len(arrays))))
    jitted = rlx.jit(gradient, target="cpu")
    close(jitted(c, *arrays), gradient(c, *arrays), "f8", weight=10)
    expect_native(jitted.report)


def test_unknown_sizes_of_a_stack_are_factorised() -> None:
    factors = rlx.compile(linalg.cholesky, rlx.spec("f64[batch, 4, 4]"), target="cpu")
    for batch in (1, 5):
        (a,) = positive(4, 0, (batch,), "f8")
        close(factors(a), linalg.cholesky(a), "f8")
        with pytest.raises(NotPositiveDefiniteError, match=rf"batch index \[{batch - 1}\]"):
            factors(np.concatenate([a[1:], -a[:1]]))


@pytest.mark.medium
def test_threads_share_stacks() -> None:
    with everything_is_shared():
        for case in LOOPED.values():
            arrays = case.draw(8, 2, (40,), "f8")
            alone, shared = (
                flat(rlx.jit(case.function, config={"options": {"cpu.threads": threads}})(*arrays))
                for threads in (1, 3)
            )
            for x, y in zip(alone, shared, strict=True):
                np.testing.assert_array_equal(x, y)


# ------------------------------------------------------------------------------------------------ errors

IDENTITY = np.eye(3)
ZERO_LAST = np.diag([1.0, 2.0, 0.0])
ONES = np.ones((3, 2))
NAN = np.where(np.eye(3), np.nan, IDENTITY)

REFUSED = {
    "cholesky of -1": (linalg.cholesky, -IDENTITY),
    "cholesky of a singular matrix": (linalg.cholesky, ZERO_LAST),
    "cholesky of an indefinite matrix": (linalg.cholesky, np.array([[1, 2, 0], [2, 1, 0], [0, 0, 1.0]])),
    "lower": (lambda a: linalg.triangular_solve(a, ones(a)), ZERO_LAST),
    "upper": (lambda a: linalg.triangular_solve(a, ones(a), lower=False, operation="transpose"), ZERO_LAST),
    "solve of rank 0": (lambda a: linalg.solve(a, ones(a)), 0 * IDENTITY),
    "solve of rank 1": (lambda a: linalg.solve(a, ones(a)), np.outer([1.0, 2, 4], [4.0, 2, 1])),
    "solve of rank 2": (lambda a: linalg.solve(a, ones(a)), ZERO_LAST),
    "inverse": (linalg.inverse, ZERO_LAST),
}
EVERY_REFUSAL = pytest.mark.parametrize(("function", "bad"), REFUSED.values(), ids=REFUSED.keys())


def ones(a: Any) -> Any:
    return rlx.ones((*a.shape[:-1], 2), a.dtype)


def refusal(call: Callable[..., Any], *arguments: Any) -> tuple[type, str, list[str], str | None]:
    """What an error says of the matrix; which op and which line it is about depends on the mode."""
    with pytest.raises(RlxError) as caught:
        call(*arguments)
    error = caught.value
    facts = [f"{fact.label}: {fact.value}" for fact in error.facts if fact.label not in ("op", "node")]
    return type(error), error.message, facts, error.hint


def stacked(bad: np.ndarray, *places: tuple[int, ...], dtype: str = "f8") -> np.ndarray:
    """A stack of identities with others at some places; of no axes without places."""
    if not places:
        return bad.astype(dtype)
    found = np.tile(IDENTITY, (2, 3, 1, 1)).astype(dtype)
    for place in places:
        found[place] = bad
    return found


@DTYPES
@EVERY_REFUSAL
@pytest.mark.parametrize("places", [(), ((0, 0),), ((1, 2), (0, 2), (1, 0))], ids=["one", "first", "several"])
def test_errors_are_those_of_eager_calls(
    function: Callable[..., Any], bad: np.ndarray, places: tuple[tuple[int, ...], ...], dtype: str
) -> None:
    a = stacked(bad, *places, dtype=dtype)
    expected = refusal(function, a)
    jitted = rlx.jit(function, target="cpu")
    assert refusal(jitted, a) == expected
    good = np.broadcast_to(IDENTITY, a.shape).astype(dtype)
    jitted(good)  # nothing of it is left
    assert refusal(jitted, a) == expected
    expect_native(jitted.report)


@EVERY_REFUSAL
@EVERY_LOOP
def test_errors_in_loops_are_those_of_eager_calls(
    loop: Callable[..., Any], function: Callable[..., Any], bad: np.ndarray
) -> None:
    case = Case(function, "", square)
    for places in ((), ((1, 2), (0, 1))):
        a = stacked(bad, *places)
        jitted = rlx.jit(lambda a: loop(case, 0 * a[..., 0, 0].sum(), a), target="cpu")
        expected = refusal(function, a)
        assert refusal(jitted, a) == expected
        expect_native(jitted.report)


def test_of_several_steps_in_a_loop_the_one_that_refuses_is_named() -> None:
    def steps(a: Any, b: Any, i: Any, x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            c = c + rlx.sum(rlx.take(x, i)) + linalg.cholesky(a)[0, 0]
            return rlx.fori_loop(
                0, 2, lambda j, c: c + linalg.solve(b, ones(b))[0, 0] + rlx.sum(rlx.take(x, i)), c
            ), None

        return rlx.scan(step, 0 * x[0], None, length=3)[0]

    jitted = rlx.jit(steps, target="cpu")
    i, x = np.array([0, 1]), np.ones(4)
    assert np.isfinite(jitted(IDENTITY, IDENTITY, i, x))
    expect_native(jitted.report)
    minor, pivot = "leading minor of order 1 (of 3) is not positive", "the numerical rank is 2 of 3"
    outside = "index 4 is outside an axis of 4 elements"
    for a, b, index, message in (
        (-IDENTITY, IDENTITY, i, minor),
        (IDENTITY, ZERO_LAST, i, pivot),
        (IDENTITY, IDENTITY, i + 3, outside),
        (-IDENTITY, ZERO_LAST, i, minor),
        (IDENTITY, ZERO_LAST, i + 3, outside),
    ):
        assert refusal(jitted, a, b, index, x)[1].endswith(message)
    assert np.isfinite(jitted(IDENTITY, IDENTITY, i, x))


@EVERY_REFUSAL
def test_the_first_matrix_is_named_whichever_thread_meets_it(function: Callable[..., Any], bad: np.ndarray) -> None:
    with everything_is_shared():
        jitted = rlx.jit(function, config={"options": {"cpu.threads": 3}})
        a = np.tile(IDENTITY, (60, 1, 1))
        a[7::5] = bad
        expected = refusal(function, a)
        assert "batch index [7]" in expected[1]
        for _ in range(20):
            assert refusal(jitted, a) == expected


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@EVERY_CASE
def test_elements_that_are_not_finite_are_as_in_eager_calls(case: Case, value: float) -> None:
    jitted = rlx.jit(case.function, target="cpu")
    for n in (1, 2, 3, 5):
        for operand in range(len(case.draw(n, 2, (), "f8"))):
            for i in range(n):
                for j in range(n if operand == 0 else 2):
                    arrays = case.draw(n, 2, (2,), "f8")
                    arrays[operand][1, i, j] = value
                    expected, found = flat(case.function(*arrays)), flat(jitted(*arrays))
                    for x, y in zip(found, expected, strict=True):
                        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_a_singular_matrix_with_a_nan_is_not_called_singular() -> None:
    for a in (np.array([[0, np.nan], [0, 1]]), np.array([[np.nan, 1], [1, 1]]), np.array([[1, np.nan], [0, 1]])):
        for b in (np.ones((2, 1)), np.ones(2)):
            for function in (linalg.solve, rlx.jit(linalg.solve, target="cpu")):
                assert np.isnan(np.asarray(function(a, b))).all()
    large = np.eye(MAX_SMALL + 1)
    large[0, 0] = np.nan
    assert np.isnan(np.asarray(rlx.jit(linalg.inverse, target="cpu")(large))).all()


def test_a_packaged_loop_raises_the_error_of_the_op(cpu: Any, tmp_path: Path) -> None:
    def steps(a: Any) -> Any:
        return rlx.scan(lambda c, _: (linalg.cholesky(a + 0.01 * c), None), 0 * a, None, length=3)[0]

    rlx.package(rlx.compile(steps, rlx.spec("f64[3, 3]"), target="cpu"), tmp_path / "m.rlxpack")
    found = rlx.load(tmp_path / "m.rlxpack")
    close(found(IDENTITY), steps(IDENTITY), "f8")
    assert refusal(found, -IDENTITY) == refusal(linalg.cholesky, -IDENTITY)
