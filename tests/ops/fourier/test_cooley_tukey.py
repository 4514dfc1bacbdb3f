"""The transform in matrix products, which targets without a library run: every kind of length, and its accuracy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ops.fourier.cooley_tukey import DIRECT, dft
from rlx_core.ops.fourier.fourier import Fft, Fourier, InverseRealFft, RealFft

LENGTHS = {
    "one product": (1, 5, DIRECT),
    "two factors": (65, 1000),
    "three": (8192,),
    "a large prime": (1021,),
    "a large prime factor": (2 * 67,),
}


def oracle(op: Fourier, x: np.ndarray) -> np.ndarray:
    wide: np.ndarray = op.reference(x.astype(np.result_type(x, np.float64)))  # type: ignore[misc]
    return wide


@pytest.mark.slow
@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_every_kind_of_length_is_accurate_in_compiled_code(kind: str, precision: Any) -> None:
    for n in LENGTHS[kind]:
        expect_accuracy(n, precision, lambda op, x: rlx.jit(op.decompose)(x))


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_every_kind_of_length_is_as_accurate_as_the_module_says(kind: str, precision: Any) -> None:
    for n in LENGTHS[kind]:
        expect_accuracy(n, precision, interpreted)


def interpreted(op: Fourier, x: np.ndarray) -> Any:
    graph = rlx.trace(op.decompose, x)
    return rlx.interpret(graph, {next(iter(graph.input_types)): x})


def expect_accuracy(n: int, precision: Any, run: Any) -> None:
    """In float32 4e-7·log₂(n) of the largest element; in float64 by as many digits more as it has."""
    rng = np.random.default_rng(9)
    share = 4e-7 * np.finfo(precision).eps / np.finfo(np.float32).eps
    x = (rng.standard_normal((2, n)) + 1j * rng.standard_normal((2, n))).astype(np.result_type(precision, np.complex64))
    half = np.fft.rfft(x.real).astype(x.dtype)
    for op, operand in ((Fft(), x), (Fft(inverse=True), x), (RealFft(), x.real), (InverseRealFft(n), half)):
        found, wanted = run(op, operand.copy()), oracle(op, operand)
        assert np.abs(found - wanted).max() <= share * max(1, math.log2(n)) * np.abs(wanted).max(), (n, op)


def test_a_long_transform_is_a_few_products() -> None:
    """2^18 = 64³: three products."""
    graph = rlx.trace(lambda x: dft(x, x, -1), rlx.spec("f32[262144]"))
    assert sum(node.op.name == "rlx.matmul" for node in graph.nodes) == 3
    assert len(graph.nodes) < 80


@pytest.mark.medium
def test_an_unknown_length_has_a_matrix_made_when_it_is_known() -> None:
    compiled = rlx.compile(lambda x: dft(x, None, -1), rlx.spec("f64[n]"), target="cpu")
    for n in (1, 7, 12):
        x = np.random.default_rng(n).standard_normal(n)
        re, im = compiled(x)
        np.testing.assert_allclose(re + 1j * im, np.fft.fft(x), atol=1e-12)
