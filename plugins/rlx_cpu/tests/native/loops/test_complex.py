"""Complex numbers in loops: two registers each, read and written side by side, on every instruction set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import WIDTHS

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.pipeline.compile import compile_graph
from rlx_core.plugins import PluginHost

HOST = PluginHost([rlx_cpu.plugin])
QUICK = "avx2"
NAMES = [pytest.param(i.name, marks=() if i.name == QUICK else pytest.mark.slow) for i in WIDTHS]
KINDS = ["c64", pytest.param("c128", marks=pytest.mark.slow)]


def compiled(function: Callable[..., Any], *x: np.ndarray, isa: str | None = None, **options: Any) -> Any:
    config = {"options": {**({"cpu.isa": isa} if isa else {}), **options}}
    types = [rlx.TensorType(rlx.result_type(a), a.shape) for a in x]
    return rlx.compile(function, *types, host=HOST, target="cpu", config=config)


def numbers(kind: str, *dims: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(dims) + 1j * rng.standard_normal(dims)).astype(np.dtype(kind.replace("c", "complex")))


def close(found: Any, expected: np.ndarray, ulps: int = 8) -> None:
    if found.dtype == bool:
        np.testing.assert_array_equal(found, expected)
        return
    kind = np.result_type(found)
    size = np.abs(expected).max(initial=1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=ulps * np.finfo(kind).eps * size)


def native(made: Any) -> bool:
    return all(step.kernel.startswith("native") for step in made.executable.lir.steps)


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add and conjugate": (lambda a, b: a + rlx.conj(b), lambda a, b: a + b.conj()),
    "product": (lambda a, b: a * b, lambda a, b: a * b),
    "quotient": (lambda a, b: a / b, lambda a, b: a / b),
    "modulus": (lambda a, b: rlx.abs(a - b), lambda a, b: np.abs(a - b)),
    "angle": (lambda a, b: rlx.angle(a) + rlx.real(b), lambda a, b: np.angle(a) + b.real),
    "parts": (lambda a, b: rlx.make_complex(rlx.imag(a), rlx.real(b)), lambda a, b: a.imag + 1j * b.real),
    "exp": (lambda a, b: rlx.exp(a) * b, lambda a, b: np.exp(a) * b),
    "sqrt": (lambda a, b: rlx.sqrt(a * b), lambda a, b: np.sqrt(a * b)),
    "where": (
        lambda a, b: rlx.where(rlx.real(a) > 0, a, 2j * b),
        lambda a, b: np.where(a.real > 0, a, 2j * b),
    ),
    "equal": (lambda a, b: a == rlx.where(rlx.imag(a) > 0, a, b), lambda a, b: a.imag > 0),
}


LENGTHS = [37, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 7, 16))]


@pytest.mark.parametrize("isa", NAMES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", LENGTHS)
def test_functions_of_elements(n: int, kind: str, isa: str) -> None:
    """Of every length: whole vectors, tails, and one element."""
    a, b = numbers(kind, n), numbers(kind, n, seed=1)
    made = compiled(lambda a, b: [function(a, b) for function, _ in FUNCTIONS.values()], a, b, isa=isa)
    assert native(made), made.executable.report
    for name, found, (_, expected) in zip(FUNCTIONS, made(a, b), FUNCTIONS.values(), strict=True):
        wanted = expected(a, b)
        assert found.dtype == wanted.dtype, name
        close(found, wanted)


@pytest.mark.parametrize("isa", NAMES)
def test_sums_and_means(isa: str) -> None:
    """Along the lanes, across them, and over all."""
    for dims in ((3, 41), (1, 1), (0, 4)):
        a, b = numbers("c64", *dims), numbers("c64", *dims, seed=1)
        made = compiled(lambda a, b: [rlx.sum(a * b, axis=axis) for axis in (0, 1, None)], a, b, isa=isa)
        assert native(made)
        for axis, found in zip((0, 1, None), made(a, b), strict=True):
            close(found, (a * b).sum(axis=axis), 50)
        if a.size:
            close(compiled(lambda a: rlx.mean(a, axis=1), a, isa=isa)(a), a.mean(axis=1), 50)


def test_few_long_rows_are_cut_and_summed_by_threads() -> None:
    a = numbers("c64", 2, 300_000)
    made = compiled(lambda a: rlx.sum(a * rlx.conj(a), axis=1), a)
    close(made(a), (a * a.conj()).sum(axis=1), 2000)


@pytest.mark.parametrize("isa", NAMES)
def test_what_does_not_lie_side_by_side(isa: str) -> None:
    """Transposed, reversed by a stride, every other, and one for all: elements by themselves, or broadcast."""
    a, b = numbers("c64", 6, 9), numbers("c64", 9, 6, seed=1)
    row = numbers("c64", 1, 9, seed=2)

    def function(a: Any, b: Any, row: Any) -> list[Any]:
        return [a * b.T, a[:, ::2] + b.T[:, ::2] * 1j, rlx.permute_dims(a * row, (1, 0)) * 2]

    for found, wanted in zip(
        compiled(function, a, b, row, isa=isa)(a, b, row),
        [a * b.T, a[:, ::2] + b.T[:, ::2] * 1j, (a * row).T * 2],
        strict=True,
    ):
        close(found, wanted)


@pytest.mark.parametrize("isa", NAMES)
def test_nothing_beyond_the_end_is_read_or_written(isa: str) -> None:
    """Guards around operands and results: what is before and behind a tail stays as it is, and does not matter."""
    whole = np.full(24, np.nan, np.complex64)
    for n in (1, 11):
        whole[8 : 8 + n] = numbers("c64", n)
        given = whole[8 : 8 + n]
        graph = rlx.trace(lambda z: z * (2 + 1j), given)
        config = {"options": {"cpu.isa": isa}}
        made = compile_graph(graph, target="cpu", host=HOST, config=config, donations={"z": 0})
        expected = given * np.complex64(2 + 1j)
        (found,) = made.program_for(made.lir).run([given])
        close(found, expected)
        assert np.shares_memory(found, whole), "written where it lies"
        assert np.isnan(whole[:8]).all()
        assert np.isnan(whole[8 + n :]).all()
        whole[:] = np.nan


def test_functions_of_numbers_that_are_not_finite_or_large() -> None:
    """C's rules (as NumPy's), where both parts of the argument are not both odd."""
    some = [0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan]
    z = np.array([complex(a, b) for a in some for b in some if np.isfinite(a) or np.isfinite(b)], np.complex128)
    large = np.array([complex(a, b) for a in (1e300, -1.7e308, 1e-300) for b in (1.7e308, -1e307, 0.0)])
    with np.errstate(all="ignore"):
        for mine, its in ((rlx.sqrt, np.sqrt), (rlx.log, np.log), (rlx.abs, np.abs)):
            for x in (z, large):
                found, expected = compiled(mine, x)(x), its(x)
                for part in (np.real, np.imag):
                    np.testing.assert_allclose(part(found), part(expected), rtol=1e-14, atol=0)
        found, expected = compiled(rlx.exp, z)(z), np.exp(z)
        np.testing.assert_allclose(found.real, expected.real, rtol=1e-14)
        np.testing.assert_allclose(found.imag, expected.imag, rtol=1e-14)


def test_a_logarithm_near_the_unit_circle() -> None:
    """The real part is small there, and its error is one of itself."""
    rng = np.random.default_rng(0)
    angles = rng.uniform(-np.pi, np.pi, 1000)
    z = (np.exp(1j * angles) * (1 + rng.uniform(-1e-3, 1e-3, 1000))).astype(np.complex64)
    exact = np.log(np.abs(z.astype(np.complex128)))
    found = compiled(rlx.log, z)(z).real
    np.testing.assert_allclose(found, exact, rtol=2e-4, atol=1e-7)


def test_the_report_says_that_it_is_native() -> None:
    z = numbers("c64", 100)
    made = compiled(lambda z: rlx.abs(rlx.exp(z) * z), z)
    made(z)
    assert "numpy" not in str(made.report).lower()
    assert native(made)


def test_chains_and_gradients_are_one_loop() -> None:
    z = numbers("c64", 64)
    made = compiled(rlx.grad(lambda z: rlx.sum(rlx.complex_norm_sq(z * z + 1))), z)
    close(made(z), 2 * (z * z + 1) * z.conj(), 40)
    assert native(made)


def test_sizes_that_come_with_the_call() -> None:
    made = rlx.compile(lambda a: rlx.sum(a * rlx.conj(a)), rlx.spec("c64[n]"), host=HOST, target="cpu")
    for n in (1, 5, 64):
        a = numbers("c64", n)
        close(made(a), (a * a.conj()).sum(), 50)
